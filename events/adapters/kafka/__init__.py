"""The event log on Apache Kafka: `log.KafkaEventLog`."""
