"""The same as plain JSON: CloudEvents in structured mode. No headers, no key; a curl of any queue could do it.

python structured.py --servers localhost:9092 --model echo --value 35 --target 10
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid

from kafka import KafkaProducer


def main(arguments: list[str] | None = None) -> int:
    """Tell one number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--model", required=True)
    parser.add_argument("--value", type=float, required=True)
    parser.add_argument("--target", type=float, default=1.0)
    given = parser.parse_args(arguments)
    event = {
        "specversion": "1.0",
        "type": "relume.signal.measured.v1",
        "source": "//acme.example/queue",
        "id": str(uuid.uuid4()),
        "data": {"model": given.model, "name": "jobs", "value": given.value, "target": given.target, "validFor": 30},
    }
    producer = KafkaProducer(bootstrap_servers=given.servers, acks="all")
    producer.send("relume.metrics", json.dumps(event).encode())
    producer.flush(30)
    producer.close(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
