"""Which benchmarks there are. Each module has `async def run(effort) -> list[Figure]`."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """A benchmark: its module, and what it measures."""

    module: str
    what: str


BENCHMARKS = {
    "gateway": About("bench.gateway", "CPU of the data port per JSON request, beside other proxies"),
    "streams": About("bench.streams", "CPU of the data port per streamed chunk, beside other proxies"),
    "activation": About("bench.activation", "first held request to the start command, one by one and in a burst"),
    "readiness": About("bench.readiness", "engine able to answer to first dispatch; the last of 1,000 held"),
    "held": About("bench.held", "5,000 held requests: memory and drain"),
    "decisions": About("bench.decisions", "a decision at 10 to 100,000 models; bytes a model; an edge among 10,000"),
    "day": About("bench.day", "a day of 100, 1,000 and 10,000 models simulated: wall time, CPU of a request"),
    "batching": About("bench.batching", "sizes of batches, simulated; a front before llama.cpp and a plain server"),
    "prices": About("bench.prices", "the price of a cold start chosen on half of FeMux's apps, judged on the other"),
    "tiers": About("bench.tiers", "warm, asleep or gone by expected cost, beside fixed keep-alives, on FeMux's apps"),
    "allocator": About("bench.allocator", "a wish to its grant at 10 to 10,000 models"),
    "placing": About("bench.placing", "1,000 and 10,000 replicas placed at once, with caches known and without"),
    "parts": About(
        "bench.parts", "gateway, autoscaler and cluster as processes on Kafka: held to started, ready to sent"
    ),
    "kubernetes": About(
        "bench.kubernetes.measure", "1,000 Models of 3 replicas on a real API server: calls, memory, reaction, restart"
    ),
    "kafka": About("bench.kafkalog", "the Kafka log beside plain kafka-python; the autoscaler behind 5,000 events/s"),
    "owners": About("bench.kafka_owners", "kill -9 of an autoscaler on Kafka: how long its models have no owner"),
    "inference": About("bench.inference", "an asynchronous request end to end, beside the same by HTTP"),
    "planning": About("bench.planning", "a plan among 1,000 and 10,000 GPUs; how full the published cluster gets"),
    "reclaim": About(
        "bench.reclaim", "a model's wish to the notice, empty cards to its grant, among 1,000 and 10,000 GPUs"
    ),
    "sharing": About("bench.sharing", "leases of a remote slot authority; how long a hand-over takes"),
    "weights": About(
        "bench.weights", "weights fetched and verified beside curl, obstore, S3 clients; a hit; last byte to usable"
    ),
    "sleep": About("bench.sleeping", "waking a sleeper beside a cold start and a warm model; the memory it holds"),
    "coldstart": About(
        "bench.coldstart",
        "the embedded model cold from HTTP and S3, 80 MiB/s a connection, beside the sum of its parts",
    ),
    "caching": About(
        "bench.caching.measure", "what the weight cache keeps of public traces beside other policies; cost of evictions"
    ),
    "trainer": About("bench.trainer", "a step of a guarded training loop; ranks that agree on where to stop"),
    "log": About("bench.eventlog", "the SQLite event log beside plain sqlite3"),
}
