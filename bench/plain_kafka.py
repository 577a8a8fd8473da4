"""kafka-python with nothing around it: the yardstick of the Kafka log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

TOPIC = "plain"
Row = tuple[bytes, bytes, list[tuple[str, bytes]]]
"""Key, value and headers of a record, encoded."""
DEADLINE = 60.0


class PlainKafka:
    """One producer and one consumer on a topic with one partition; acks=all, idempotent, no lingering."""

    def __init__(self, address: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=address)
        if TOPIC not in admin.list_topics():
            admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
            admin.wait_for_topics([TOPIC])
        admin.close()
        self._producer = KafkaProducer(bootstrap_servers=address, linger_ms=0, acks="all", batch_size=65_536)
        self._consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        self._place = TopicPartition(TOPIC, 0)
        self._consumer.assign([self._place])
        self._consumer.seek_to_end(self._place)
        self._consumer.position(self._place)

    def round_trips(self, count: int = 2) -> float:
        """Seconds for so many, one after the other: sent, acknowledged, consumed."""
        began = time.perf_counter()
        for _ in range(count):
            self._producer.send(TOPIC, b"x" * 1024).get(DEADLINE)
            self._take(1)
        return time.perf_counter() - began

    def produce(self, rows: Sequence[Row]) -> float:
        """CPU seconds of this process until all are acknowledged."""
        cpu = time.process_time()
        sent = [self._producer.send(TOPIC, value, key=key, headers=headers) for key, value, headers in rows]
        for one in sent:
            one.get(DEADLINE)
        return time.process_time() - cpu

    def consume(self, count: int) -> float:
        """CPU seconds of this process to take so many that have been produced."""
        cpu = time.process_time()
        self._take(count)
        return time.process_time() - cpu

    def close(self) -> None:
        """Disconnect."""
        self._producer.close(5)
        self._consumer.close()

    def _take(self, count: int) -> None:
        deadline = time.perf_counter() + DEADLINE
        while count > 0:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{count} records did not come")
            count -= sum(len(records) for records in self._consumer.poll(1000, max_records=5000).values())
