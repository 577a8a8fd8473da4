"""Engines: how to start one, when it is ready, what it can do. Only deploy and tests import these."""
