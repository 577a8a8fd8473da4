"""docs/how-to/event-stream.md, run as it stands there: its model, its program, its command, its line of JSON."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from kafka import KafkaProducer

from deploy.demo.server import PROGRAM
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.needs import ROOT
from tests.support.running import Running, running

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

PAGE = (ROOT / "docs" / "how-to" / "event-stream.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of code of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def _run(broker: Broker, *words: str) -> asyncio.subprocess.Process:
    there = [word.replace("localhost:9092", broker.address) for word in words]
    return await asyncio.create_subprocess_exec(*there)


async def test_the_page(broker: Broker, tmp_path: Path) -> None:
    """Eleven requests are three replicas; they finish, and it rests; 25 jobs are three replicas again, told by the
    command, then as plain JSON; the explanation names them."""
    model, _ = (block for block in blocks("yaml") if "kind: Model" in block)
    (program,) = blocks("python")
    (command,) = [line for line in "".join(blocks("console")).splitlines() if "produce" in line]
    (line,) = blocks("json")
    kafka = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
    async with running(tmp_path, model, *kafka) as relume:
        producer = await _run(broker, sys.executable, "-W", "ignore", "-c", program)
        await _three(relume)
        assert await asyncio.wait_for(producer.wait(), 120) == 0
        words = shlex.split(command.removeprefix("$ relume "))
        assert await (await _run(broker, *PROGRAM, *words)).wait() == 0
        await _three(relume)
        event = json.loads(line)
        event["data"]["value"] = 35
        plain = KafkaProducer(bootstrap_servers=broker.address)
        plain.send("relume.metrics", json.dumps(event).encode()).get(30)
        plain.close(5)
        await relume.until(lambda status: status["readyReplicas"] == 4, within=60)
        async with relume.session.get(f"{relume.admin}/models/echo/explain") as answer:
            told = " ".join((await answer.json())["sentences"])
        assert "Signal jobs was 35, at 10 a replica" in told
        assert "jobs the most" in told


async def _three(relume: Running) -> None:
    await relume.until(lambda status: status["readyReplicas"] == 3, within=60)
