"""The simulated engine over HTTP: limits, cancelling, faults, counts."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from events.clock import SystemClock
from runtime.engines.simulated.server import SimulatedServer
from runtime.engines.simulated.settings import parse
from tests.support.simulated import completion, events_of, simulated

SLOW = ("--time-to-first-token", "10ms", "--inter-token-latency", "1s")


async def test_health_is_503_while_loading_then_200() -> None:
    """Requests that come too early get an error object, not a closed connection."""
    lines: list[str] = []
    settings = parse(["--model", "sim", "--port", "0", "--startup-duration", "100ms"])
    server = SimulatedServer(settings, SystemClock(), lines.append)
    await server.start()
    url = f"http://127.0.0.1:{server.port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/health") as answer:
            assert answer.status == 503
        async with session.post(f"{url}/v1/completions", json=completion()) as answer:
            assert (answer.status, (await answer.json())["error"]["message"]) == (503, "Loading model")
        await server.load(asyncio.Event())
        async with session.get(f"{url}/health") as answer:
            assert answer.status == 200
    await server.close()
    assert lines[-1] == "ready: 5 slots"


async def test_requests_beyond_the_slots_wait_and_are_told_of() -> None:
    """Four at once on two slots: all are answered, and the stats say that the slots were oversold."""
    async with simulated("--max-num-seqs", "2", "--time-to-first-token", "50ms") as engine:
        replies = await asyncio.gather(*(engine.post("/v1/completions", completion()) for _ in range(4)))
        assert [reply.status for reply in replies] == [200] * 4
        stats = await engine.stats()
        assert (stats["peak"], stats["oversold"], stats["finished"], stats["running"]) == (4, 2, 4, 0)


async def test_slots_that_were_respected_show_as_such() -> None:
    """As many requests as slots: nothing oversold."""
    async with simulated("--max-num-seqs", "4", "--time-to-first-token", "20ms") as engine:
        await asyncio.gather(*(engine.post("/v1/completions", completion()) for _ in range(4)))
        assert (await engine.stats())["oversold"] == 0


async def test_a_full_queue_answers_503() -> None:
    """With the slot busy and no place to wait."""
    async with simulated("--max-num-seqs", "1", "--max-waiting-queue-length", "0", *SLOW) as engine:
        first = asyncio.ensure_future(engine.post("/v1/completions", completion(max_tokens=2)))
        await engine.until(running=1)
        reply = await engine.post("/v1/completions", completion())
        assert (reply.status, reply.parsed["error"]["code"]) == (503, "queue_full")
        assert (await first).status == 200


@pytest.mark.parametrize(
    ("cancels", "stream", "running"),
    [("always", True, 0), ("always", False, 0), ("streams", True, 0), ("streams", False, 1), ("never", True, 1)],
)
async def test_what_a_request_does_when_its_client_leaves(cancels: str, stream: bool, running: int) -> None:
    """It stops at once, or goes on for nobody, as the engine that is imitated does."""
    async with simulated("--cancels", cancels, *SLOW) as engine:
        request = asyncio.ensure_future(engine.post("/v1/completions", completion(max_tokens=3, stream=stream)))
        await engine.until(running=1)
        request.cancel()
        await engine.until(cancelled=1 - running, abandoned=running, running=running)


async def test_a_waiting_request_whose_client_leaves_never_begins() -> None:
    """Its place in the queue is free at once."""
    async with simulated("--max-num-seqs", "1", *SLOW) as engine:
        first = asyncio.ensure_future(engine.post("/v1/completions", completion(max_tokens=600)))
        await engine.until(running=1)
        second = asyncio.ensure_future(engine.post("/v1/completions", completion()))
        await engine.until(waiting=1)
        second.cancel()
        await engine.until(waiting=0, running=1, cancelled=1)
        first.cancel()
        await engine.until(running=0, cancelled=2)


async def test_a_stream_has_one_event_a_token_then_usage_then_done() -> None:
    """Also with times, where timers may be a millisecond early."""
    async with simulated("--time-to-first-token", "20ms", "--inter-token-latency", "3ms") as engine:
        body = completion(stream=True, max_tokens=5, stream_options={"include_usage": True})
        reply = await engine.post("/v1/completions", body, **{"x-request-id": "r1"})
        events = events_of(reply.body)
        assert len(events) == 5 + 1 + 1 + 1
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        assert json.loads(events[-3])["choices"][0]["finish_reason"] == "length"
        whole = await engine.post("/v1/completions", completion(max_tokens=5))
        assert (
            "".join(json.loads(event)["choices"][0]["text"] for event in events[:5])
            == (whole.parsed["choices"][0]["text"])
        )
        assert reply.headers["x-request-id"] == "r1"


async def test_context_and_kv_cache_limits() -> None:
    """Too long for the context, or for the whole cache: 400. What only does not fit now waits."""
    flags = ("--max-model-len", "50", "--kv-tokens", "20", "--time-to-first-token", "500ms", "--max-num-seqs", "9")
    async with simulated(*flags) as engine:
        long = await engine.post("/v1/completions", completion(max_tokens=48))
        large = await engine.post("/v1/completions", completion(max_tokens=18))
        assert [reply.status for reply in (long, large)] == [400, 400]
        assert {reply.parsed["error"]["code"] for reply in (long, large)} == {"context_length_exceeded"}
        fitting = [engine.post("/v1/completions", completion(max_tokens=9)) for _ in range(2)]
        assert [reply.status for reply in await asyncio.gather(*fitting)] == [200, 200]
        stats = await engine.stats()
        assert (stats["refused"], stats["finished"], stats["peak"]) == (2, 2, 2)


async def test_injected_failures_are_error_objects() -> None:
    """At 100 per cent all fail, in the ways asked for, except relume's own warm-up."""
    async with simulated("--failure-injection-rate", "100", "--failure-types", "rate_limit") as engine:
        reply = await engine.post("/v1/completions", completion())
        assert (reply.status, reply.parsed["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await engine.post("/v1/completions?probe", completion())).status == 200
        stats = await engine.stats()
        assert (stats["failed"], stats["total"]) == (1, 1)


async def test_the_rate_of_failures_is_repeatable() -> None:
    """The same seed fails the same requests."""

    async def statuses() -> list[int]:
        async with simulated("--failure-injection-rate", "50") as engine:
            return [(await engine.post("/v1/completions", completion())).status for _ in range(20)]

    first = await statuses()
    assert first == await statuses()
    assert 1 < sum(status == 200 for status in first) < 19


async def test_a_broken_stream_ends_without_its_end() -> None:
    """The client sees a cut connection after some tokens."""
    async with simulated("--break-rate", "100", "--inter-token-latency", "5ms") as engine:
        got = bytearray()

        async def read() -> None:
            body = completion(stream=True, max_tokens=8)
            async with engine.session.post(f"{engine.url}/v1/completions", json=body) as answer:
                async for part in answer.content.iter_any():
                    got.extend(part)

        with pytest.raises(aiohttp.ClientError):
            await read()
        assert 0 < len(events_of(bytes(got))) <= 4
        assert (await engine.stats())["broken"] == 1


async def test_a_hanging_request_holds_its_slot_until_its_client_leaves() -> None:
    """Deadlines in front of the engine have something to act on."""
    async with simulated("--hang-rate", "100") as engine:
        request = asyncio.ensure_future(engine.post("/v1/completions", completion()))
        await engine.until(running=1)
        done, _ = await asyncio.wait({request}, timeout=0.1)
        assert not done
        request.cancel()
        await engine.until(running=0, cancelled=1)


async def test_request_ids_show_what_ran_twice() -> None:
    """Both headers count; the newest can be listed."""
    async with simulated() as engine:
        for request_id in ("a", "b", "a"):
            await engine.post("/v1/completions", completion(), **{"x-relume-request-id": request_id})
        stats = await engine.stats("?ids=10")
        assert (stats["requestIds"], stats["duplicates"], stats["repeated"]) == (2, 1, {"a": 2})
        assert stats["ids"] == ["a", "b"]


async def test_running_and_metrics_tell_the_load() -> None:
    """With vLLM's names, while two run and one waits."""
    async with simulated("--max-num-seqs", "2", "--kv-tokens", "1000", *SLOW) as engine:
        requests = [asyncio.ensure_future(engine.post("/v1/completions", completion(max_tokens=97))) for _ in range(3)]
        await engine.until(running=2, waiting=1)
        assert (await engine.get("/running")).parsed == {"running": 2, "waiting": 1, "slots": 2}
        text = (await engine.get("/metrics")).body.decode()
        assert 'vllm:num_requests_running{model_name="sim"} 2.0' in text
        assert 'vllm:num_requests_waiting{model_name="sim"} 1.0' in text
        assert 'vllm:kv_cache_usage_perc{model_name="sim"} 0.2' in text
        for request in requests:
            request.cancel()
        await engine.until(running=0, waiting=0)


async def test_load_slows_requests_down_when_asked_to() -> None:
    """Of two on two slots the second takes three times as long as the first."""
    flags = ("--max-num-seqs", "2", "--time-factor-under-load", "3", "--time-to-first-token", "60ms")
    async with simulated(*flags) as engine:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(engine.post("/v1/completions", completion()) for _ in range(2)))
        assert loop.time() - began >= 0.17


async def test_names_of_other_models_are_refused_only_when_strict() -> None:
    """An alias reaches the engine as the client wrote it, so by default every name will do."""
    async with simulated() as engine:
        assert (await engine.post("/v1/completions", completion(model="alias"))).parsed["model"] == "alias"
    async with simulated("--strict-model") as engine:
        reply = await engine.post("/v1/completions", completion(model="alias"))
        assert (reply.status, reply.parsed["error"]["code"]) == (404, "model_not_found")


async def test_hundreds_of_streams_at_once_are_all_whole() -> None:
    """Each has its own tokens, in order, and its end."""
    async with simulated("--max-num-seqs", "300", "--inter-token-latency", "10ms") as engine:
        body = completion(stream=True, max_tokens=10)
        replies = await asyncio.gather(*(engine.post("/v1/completions", body) for _ in range(300)))
        assert {len(events_of(reply.body)) for reply in replies} == {12}
        stats = await engine.stats()
        assert (stats["finished"], stats["oversold"], stats["generatedTokens"]) == (300, 0, 3_000)


async def test_an_answer_of_default_length_ends_with_the_context() -> None:
    """A request that names no length is not refused for the length that it would have had."""
    async with simulated("--max-model-len", "5") as engine:
        reply = await engine.post("/v1/completions", completion())
        assert (reply.status, reply.parsed["usage"]["completion_tokens"]) == (200, 2)
