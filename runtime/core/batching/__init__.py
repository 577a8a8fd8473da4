"""What goes into one batch, and how large it may be. Pure."""
