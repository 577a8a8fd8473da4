"""Signals, policies, decisions, the loop that records a wish before anybody acts on it."""
