"""Event logs: memory and SQLite. Only deploy and tests import these."""
