"""The pure half of the weight cache: plans, pace, room, and what can go wrong."""
