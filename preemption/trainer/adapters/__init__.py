"""Frameworks: what to save of each, and where in its loop to look. Each module needs the extra of its name."""
