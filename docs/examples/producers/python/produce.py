"""Tell relume of demand on Kafka, in binary mode: requests that arrive and finish elsewhere, a number, a wish to wake.

    pip install kafka-python==3.0.12
    python produce.py requests --servers localhost:9092 --model echo --count 12 --seconds 5
    python produce.py signal --servers localhost:9092 --model echo --name jobs --value 35 --target 10
    python produce.py wake --servers localhost:9092 --model echo --replicas 2

It knows nothing but docs/reference/asyncapi.yaml: topics, types, and the shape of their data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid

from kafka import KafkaProducer


def send(producer: KafkaProducer, topic: str, kind: str, data: dict[str, object]) -> None:
    """One event. (source, id) names it: the same pair again, after a retry of yours, is the same event.

    The key decides the partition: with `model/NAME` all events of a model stay in their order.
    """
    headers = {
        "ce_specversion": "1.0", "ce_type": kind, "ce_source": "//acme.example/front-door", "ce_id": str(uuid.uuid4()),
        "content-type": "application/json",
    }  # fmt: skip
    producer.send(
        topic, key=f"model/{data['model']}".encode(), value=json.dumps(data).encode(),
        headers=[(name, text.encode()) for name, text in headers.items()],
    )  # fmt: skip


def requests(producer: KafkaProducer, model: str, count: int, seconds: float) -> None:
    """So many requests run for so long: relume sizes the model by how many are in flight."""
    names = [str(uuid.uuid4()) for _ in range(count)]
    for name in names:
        send(producer, "relume.requests", "relume.request.arrived.v1", {"model": model, "request": name})
    producer.flush(30)
    time.sleep(seconds)
    for name in names:
        data: dict[str, object] = {"model": model, "request": name, "ok": True}
        send(producer, "relume.requests", "relume.request.finished.v1", data)


def main(arguments: list[str] | None = None) -> int:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["requests", "signal", "wake"])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--name", default="jobs")
    parser.add_argument("--value", type=float, default=1.0)
    parser.add_argument("--target", type=float, default=1.0)
    parser.add_argument("--replicas", type=int, default=1)
    given = parser.parse_args(arguments)
    producer = KafkaProducer(bootstrap_servers=given.servers, acks="all")
    if given.what == "requests":
        requests(producer, given.model, given.count, given.seconds)
    elif given.what == "signal":
        data = {"model": given.model, "name": given.name, "value": given.value, "target": given.target, "validFor": 30}
        send(producer, "relume.metrics", "relume.signal.measured.v1", data)
    else:
        wanted = {"model": given.model, "replicas": given.replicas}
        send(producer, "relume.requests", "relume.activation.requested.v1", wanted)
    producer.flush(30)
    producer.close(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
