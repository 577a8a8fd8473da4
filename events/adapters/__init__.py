"""Event logs: in memory, on SQLite, on Kafka. Only deploy and tests import these."""
