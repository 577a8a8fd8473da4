"""GPUs as the agents of their nodes see them, on a real control plane: what a stranger uses is not given until it is
empty, and a card that training leaves is handed on when its driver says that nobody is on it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.kubernetes.training.shaping import LABEL_JOB
from tests.support.kube_agent import install_agent, uninstall_agent
from tests.support.kube_kubelet import FakeNode
from tests.support.kube_plane import ControlPlane
from tests.support.kube_training import MODEL, Training, job, small
from tests.support.kube_world import World, pod_model, world
from tests.support.kubelet_socket import KubeletSocket, kubelet_socket
from tests.support.nvml import FakeCard, FakeNvml

pytestmark = [
    pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes"), pytest.mark.needs("podresources"),
    pytest.mark.needs("nvml"),
]  # fmt: skip

GI = 1 << 30


@dataclass(frozen=True)
class Stage:
    """A node whose agent sees GPUs: what their driver says, and what the kubelet does."""

    here: World
    driver: FakeNvml
    kubelet: KubeletSocket

    async def seen(self, wanted: str) -> None:
        """Return once the newest that is told of its GPUs has this state, as `relume gpus` reads it."""

        async def so() -> bool:
            url = f"{self.here.relume.endpoints['admin']}/v1alpha1/gpus"
            async with self.here.session.get(url) as answer:
                nodes = (await answer.json())["nodes"]
            return any(
                one["unaccounted" if wanted == "unaccounted" else "empty"]
                for node in nodes
                for one in node["devices"] or ()
            )

        await self.here.until(f"a GPU is {wanted}", so)

    async def cards(self) -> int:
        """How many the node has for replicas, as it was told last."""
        told = [one for one in await self.here.told("relume.cards") if "cards" in one]
        return len(told[-1]["cards"]) if told else -1


@asynccontextmanager
async def stage(plane: ControlPlane, folder: Path, cards: list[FakeCard]) -> AsyncIterator[Stage]:
    """One node with so many GPUs, its agent, and relume."""
    node = FakeNode(f"seen-{os.getpid()}", extended={"nvidia.com/gpu": len(cards)})
    driver = FakeNvml(folder / "lib", cards)
    with tempfile.TemporaryDirectory(prefix="kubelet-") as short:
        async with kubelet_socket(Path(short)) as kubelet, world(plane, folder, [node]) as here:
            kubelet.offered = [one.uuid for one in cards]
            kubelet.say()
            try:
                await install_agent(here, folder / "node", more={**driver.build(), "RELUME_POD_RESOURCES": short})
                await here.relume.start()
                yield Stage(here, driver, kubelet)
            finally:
                await uninstall_agent(here)


async def test_what_a_stranger_uses_is_not_given_until_it_is_empty(plane: ControlPlane, tmp_path: Path) -> None:
    """Of two cards one is in use by nobody's pod: one replica starts, the other waits, and gets it once it is empty."""
    async with stage(plane, tmp_path, [FakeCard("GPU-a"), FakeCard("GPU-b", used=8 * GI)]) as made:
        await made.seen("unaccounted")
        await made.here.until("the node has one card fewer", lambda: _is(made, 1))
        await made.here.apply(pod_model(minReplicas=2, maxReplicas=2))
        await made.here.until("one is ready", lambda: _ready(made.here, 1))
        status = await made.here.status()
        assert status["readyReplicas"] == 1
        made.driver.cards[1].used = 0
        made.driver.say()
        await made.here.until("both are ready", lambda: _ready(made.here, 2))


async def test_a_reclaimed_card_is_handed_on_when_it_is_seen_empty(plane: ControlPlane, tmp_path: Path) -> None:
    """The trainer saves and its pod ends, and its memory stays in use: the model waits, and starts when it is free."""
    async with stage(plane, tmp_path, [FakeCard("GPU-a")]) as made:
        here, training = made.here, Training(made.here)
        await here.apply(MODEL)
        await training.apply(job(tmp_path, small(tmp_path, 2000)))
        await training.until("it trains", lambda seen: (seen["step"] or 0) >= 1)
        (pod,) = [one for one in await here.pods() if LABEL_JOB in one["metadata"]["labels"]]
        made.kubelet.given = {f"{here.namespace}/{pod['metadata']['name']}": ["GPU-a"]}
        made.kubelet.say()
        made.driver.cards[0].used = 8 * GI
        made.driver.say()

        async def known() -> bool:
            told = [one for one in await here.told("relume.cards") if one.get("gpus")]
            return bool(told) and bool(told[-1]["gpus"][0]["pods"]) and told[-1]["gpus"][0]["empty"] is False

        await here.until("its pod is seen on the card", known)
        asking = asyncio.create_task(here.chat())

        async def ended() -> bool:
            return any(one["state"] == "draining" for one in await training.reclaims())

        await here.until("its run has ended, and the card is waited for", ended)
        made.kubelet.given = {}
        made.kubelet.say()
        await made.seen("unaccounted")
        assert not asking.done()
        assert not [one for one in await here.pods() if "relume.dev/model" in one["metadata"]["labels"]]
        made.driver.cards[0].used = 0
        made.driver.say()
        answer = await asking
        assert answer.status == 200, await answer.text()


async def _is(made: Stage, cards: int) -> bool:
    return await made.cards() == cards


async def _ready(here: World, count: int) -> bool:
    return bool((await here.status()).get("readyReplicas") == count)
