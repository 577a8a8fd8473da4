"""Measurements of relume beside yardsticks from the same run; `python -m bench` runs them."""
