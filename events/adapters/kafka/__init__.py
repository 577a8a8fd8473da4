"""The event log on Apache Kafka: `log.KafkaEventLog`, and work on it."""
