"""Starts whose weights come through the node's cache: fetched, shared, in use, refused with a reason."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coldstart.cache import holding, inventory
from coldstart.core.cache.errors import InUse
from coldstart.core.cache.policy import RoomPolicy
from events.types.phases import ReplicaDrained
from events.types.replicas import Phase, ReplicasObserved, ReplicaState
from events.units import Bytes
from tests.support.flaky_origin import Origin, served
from tests.support.local_cluster import Stage, alive, states, until_dead
from tests.support.weights_stage import CHUNK, content, tells_weights, weights_stage


def failed(reason: str) -> Callable[[ReplicasObserved], bool]:
    """Whether a model's start has failed for this reason."""
    return lambda state: state.failures > 0 and state.reason == reason


async def drained(stage: Stage, model: str) -> None:
    """Wait until its replica drains, and say that its last request is done."""
    await stage.until(lambda state: states(state) == [ReplicaState.DRAINING], model)
    await stage.say(ReplicaDrained(model=model, replica=f"{model}-r1-0"))


async def test_a_start_fetches_first_and_gives_the_engine_the_path(tmp_path: Path) -> None:
    """Cold from HTTP: the phase fetch comes before spawn, and the engine's path holds exactly the origin's bytes."""
    told = tmp_path / "env.json"
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, agent):
            await stage.declare(tells_weights(origin.url, "--tell-env", told))
            await stage.grant(0)
            replica = (await stage.ready()).replicas[0]
            assert [span.phase for span in replica.phases] == [Phase.FETCH, Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
            path = Path(json.loads(told.read_text())["RELUME_WEIGHTS"])
            assert await asyncio.to_thread(path.read_bytes) == origin.content
            assert path.is_relative_to(agent.layout.snapshots)
            assert replica.weights is not None
            assert (replica.weights.bytes, replica.weights.tier) == (len(origin.content), "remote")


async def test_a_second_start_asks_nobody(tmp_path: Path) -> None:
    """What is here is used without a word to its source, also when the source is gone; it is told where it was."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(origin.url))
            await stage.grant(0)
            await stage.ready()
            asked = origin.asked
            await stage.grant(0, 1)
            second = (await stage.ready(2)).replicas[1]
            assert origin.asked == asked
            assert second.weights is not None
            assert second.weights.tier in ("memory", "disk")


async def test_one_fetch_for_all_and_who_leaves_does_not_stop_it(tmp_path: Path) -> None:
    """Many starts of two models with the same weights wait for one fetch; that some are taken back does not end it."""
    with served(Origin(content(20))) as origin:
        origin.open_gate.clear()
        async with weights_stage(tmp_path) as (stage, agent):
            for model in ("echo", "other"):
                await stage.declare(tells_weights(origin.url), model)
                await stage.grant(0, 1, 2, model=model)
            while not agent.in_flight() or agent.in_flight()[0].waiting < 6:  # noqa: ASYNC110 - starts of their own
                await asyncio.sleep(0.01)
            assert len(agent.in_flight()) == 1
            await stage.grant(model="other")
            await stage.gone("other")
            assert agent.in_flight()[0].waiting == 3
            origin.open_gate.set()
            await stage.ready(3)
            assert origin.sent == len(origin.content)


async def test_in_use_is_never_evicted_until_the_processes_are_gone(tmp_path: Path) -> None:
    """A replica's weights are in use by its processes, not by relume's memory: the use ends with the last of them."""
    with served(Origin(content())) as origin:
        async with weights_stage(tmp_path) as (stage, agent):
            await stage.declare(tells_weights(origin.url))
            await stage.grant(0)
            replica = (await stage.ready()).replicas[0]
            one = inventory.named(agent.layout, origin.url)
            stage_replica = stage.cluster._reconciler.replicas()[0]
            assert stage_replica._had is not None
            stage_replica._had.end()  # as if relume were dead: shim and engine inherited it
            assert holding.used(agent.layout, one.snapshots[0])
            with pytest.raises(InUse):
                inventory.evict(agent.layout, one)
            await stage.grant()
            await drained(stage, "echo")
            await stage.gone()
            assert replica.pid is not None
            await until_dead([replica.pid], 5.0)
            assert not holding.used(agent.layout, one.snapshots[0])


@pytest.mark.parametrize(
    ("fault", "weights", "reason", "words"),
    [
        ("", {"digest": "sha256:" + "0" * 64}, "WeightsMismatch", "was asked for"),
        ("forbidden", {}, "WeightsNotFound", "refused"),
    ],
)  # fmt: skip
async def test_typed_failures(
    tmp_path: Path, fault: str, weights: dict[str, object], reason: str, words: str
) -> None:  # fmt: skip
    """Weights that cannot be had fail the start with a reason, a sentence and a back-off, and leave nothing running."""
    origin = Origin(content(2))
    with served(origin):
        url = origin.url if not fault else "file:///no/such/file"
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(url, **({"cache": True} if fault else {}), **weights))
            await stage.grant(0)
            observed = await stage.until(failed(reason))
            assert words in observed.message
            assert observed.retry_at is not None


async def test_unknown_scheme_is_told(tmp_path: Path) -> None:
    """An address that no source reads is the declaration's fault, in words."""
    async with weights_stage(tmp_path) as (stage, _):
        await stage.declare(tells_weights("gopher://models.example/x"))
        await stage.grant(0)
        observed = await stage.until(failed("InvalidSpec"))
        assert "gopher" in observed.message


async def test_a_full_cache_fails_one_model_and_no_other(tmp_path: Path) -> None:
    """Weights larger than the cache are refused at once with the numbers; a smaller model starts all the same."""
    with served(Origin(content(20))) as large, served(Origin(content(2, seed=7))) as small:
        async with weights_stage(tmp_path, RoomPolicy(capacity=Bytes(5 * CHUNK))) as (stage, _):
            await stage.declare(tells_weights(large.url), "large")
            await stage.grant(0, model="large")
            observed = await stage.until(failed("WeightsNoSpace"), "large")
            assert str(len(large.content)) in observed.message
            assert large.sent == 0
            await stage.declare(tells_weights(small.url), "small")
            await stage.grant(0, model="small")
            await stage.ready(model="small")


async def test_in_use_weights_are_not_evicted_for_others(tmp_path: Path) -> None:
    """Where all room is in use the next model fails with the numbers; once the room's user is gone it starts."""
    with served(Origin(content(3))) as first, served(Origin(content(3, seed=7))) as second:
        async with weights_stage(tmp_path, RoomPolicy(capacity=Bytes(5 * CHUNK))) as (stage, _):
            await stage.declare(tells_weights(first.url), "first")
            await stage.grant(0, model="first")
            await stage.ready(model="first")
            await stage.declare(tells_weights(second.url), "second")
            await stage.grant(0, model="second")
            observed = await stage.until(failed("WeightsNoSpace"), "second")
            assert "in use" in observed.message
            await stage.grant(model="first")
            await drained(stage, "first")
            await stage.gone("first")
            await stage.ready(model="second")


async def test_room_is_asked_for_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was not there: others may make it at any moment."""
    monkeypatch.setattr("deploy.local.replica.ROOM_AGAIN", 0.1)
    with served(Origin(content(20))) as large:
        async with weights_stage(tmp_path, RoomPolicy(capacity=Bytes(5 * CHUNK))) as (stage, _):
            await stage.declare(tells_weights(large.url), "large")
            await stage.grant(0, model="large")
            await stage.until(lambda told: told.failures >= 6, "large")  # 31 s, if it were tried as others are


async def test_progress_is_told_while_bytes_come(tmp_path: Path) -> None:
    """While a slow source sends, the replica's state says how many bytes are here and how fast they come."""
    with served(Origin(content(40))) as origin:
        origin.rate = 256 << 10
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(origin.url))
            await stage.grant(0)

            def coming(state: ReplicasObserved) -> bool:
                told = [one.weights for one in state.replicas if one.weights is not None and one.phase is Phase.FETCH]
                return any(0 < one.done < one.bytes and one.rate for one in told)

            observed = await stage.until(coming)
            assert observed.replicas[0].state is ReplicaState.STARTING
            origin.rate = None
            await stage.ready()


async def test_the_content_is_what_was_asked_for(tmp_path: Path) -> None:
    """With a digest the right content starts; the digest is part of what a fetch is told apart by."""
    with served(Origin(content(2))) as origin:
        digest = f"sha256:{hashlib.sha256(origin.content).hexdigest()}"
        async with weights_stage(tmp_path) as (stage, _):
            await stage.declare(tells_weights(origin.url, digest=digest))
            await stage.grant(0)
            replica = (await stage.ready()).replicas[0]
            assert replica.pid is not None
            assert alive(replica.pid)
