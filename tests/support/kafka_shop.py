"""A foreign producer of asynchronous requests on Kafka, and a reader of their outcomes, as strangers write them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.kafka_broker import Broker

REQUESTS, RESULTS, DEAD = (f"relume.inference.{name}" for name in ("requests", "results", "dead-letters"))
TYPE = "relume.inference.requested.v1"
PARTITIONS = 3
"""Of each topic: what the processes under test are told too."""


class Reader:
    """Reads results and dead letters as anybody would: committed ones alone, from the beginning, in a thread."""

    def __init__(self, broker: Broker) -> None:
        self.outcomes: Counter[str] = Counter()
        self.results: set[str] = set()
        self.reasons: dict[str, str] = {}
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def until(self, count: int, within: float) -> None:
        """Wait until so many requests have an outcome."""
        try:
            async with asyncio.timeout(within):
                while len(self.outcomes) < count:  # noqa: ASYNC110 - it is counted in a thread
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{len(self.outcomes)} of {count} have an outcome after {within} s") from None

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._broker.address, isolation_level="read_committed", auto_offset_reset="earliest",
            enable_auto_commit=False, reconnect_backoff_max_ms=500,
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, at) for topic in (RESULTS, DEAD) for at in range(PARTITIONS)])
        while not self._stop.is_set():
            for partition, records in consumer.poll(timeout_ms=200).items():
                for record in records:
                    headers = dict(record.headers)
                    cause = headers["ce_cause"].decode()
                    self.outcomes[cause] += 1
                    if partition.topic == RESULTS:
                        self.results.add(cause)
                    else:
                        self.reasons[cause] = json.loads(record.value)["reason"]
        consumer.close()


class Shop:
    """A foreign producer: it knows the document, nothing else, and makes every mistake."""

    def __init__(self, broker: Broker) -> None:
        self.producer = KafkaProducer(bootstrap_servers=broker.address, linger_ms=5, max_request_size=3 << 20)
        self.sent: set[str] = set()

    def send(self, ident: str, data: object, model: str = "echo", **how: object) -> None:
        """One request, perhaps not for the first time. `raw`, `kind`, `partition`, `key`, `time` say what is odd."""
        self.sent.add(ident)
        headers = {"ce_specversion": "1.0", "ce_id": ident, "ce_source": "//shop", "ce_type": how.get("kind", TYPE)}
        if "time" in how:
            headers["ce_time"] = how["time"]
        value = how.get("raw") or json.dumps(data).encode()
        self.producer.send(
            REQUESTS, value, key=str(how.get("key", model)).encode(), partition=how.get("partition"),
            headers=[(name, str(text).encode()) for name, text in headers.items()],
        )  # fmt: skip

    def order(self, number: int, **more: object) -> dict[str, object]:
        """The data of an ordinary request."""
        body = {"model": "echo", "messages": [{"role": "user", "content": f"order {number}"}], "max_tokens": 1}
        return {"path": "/v1/chat/completions", "body": body, **more}
