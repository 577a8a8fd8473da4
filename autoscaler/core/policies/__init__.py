"""Scaling policies: pure functions of a snapshot, a policy's numbers and now."""
