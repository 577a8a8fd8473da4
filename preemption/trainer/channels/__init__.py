"""Ways in which a notice reaches a trainer."""
