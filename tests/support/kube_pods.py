"""One pod of the tests' kubelet: its container as a local process, and the status that a kubelet would write of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.kubernetes.api import ApiUnavailable
from deploy.kubernetes.resources import Json
from deploy.kubernetes.times import time
from events.clock import SystemClock
from tests.support.kube_mounts import Missing, PodMounts
from tests.support.kube_notes import PodNotes

FIRST_BACKOFF: Final = 1.0
"""Seconds before a container is started again; a real kubelet's first is 10."""
LONGEST_BACKOFF: Final = 20.0
LOOKED_AGAIN: Final = 0.5
"""Seconds until something that was missing is looked for again; a real kubelet takes up to two minutes."""
ROOT: Final = str(Path(__file__).parents[2])
"""Where the sources are that "images" have."""
ALL_ADDRESSES: Final = ("0.0.0.0", "::")
MISSING: Final = "missing.test/"
"""Images that begin with this cannot be pulled."""
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True)
class Address:
    """Where a pod listens, and what its status says."""

    real: str
    told: str


@dataclass(frozen=True)
class Told:
    """A status to write."""

    namespace: str
    name: str
    uid: str
    node: str
    status: Json


class PodProcess:
    """A pod of one container. `tell` writes its status, `mount` makes its volumes."""

    def __init__(
        self, pod: Json, address: Address, folder: Path, tell: Callable[[Told], Awaitable[None]],
        mount: Callable[[Json, Path], Awaitable[PodMounts]],
    ) -> None:  # fmt: skip
        self.pod = pod
        self.address = address.real
        self._told_address = address.told
        self.uid: str = pod["metadata"]["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self.log = folder / f"{pod['metadata']['name']}-{self.uid[:8]}.log"
        self.notes = PodNotes(pod, folder)
        self._tell = tell
        self._mount = mount
        self._mounts = PodMounts()
        self._clock = SystemClock()
        self._container: Json = pod["spec"]["containers"][0]
        self._process: asyncio.subprocess.Process | None = None
        self._asked: asyncio.subprocess.Process | None = None
        """Who had SIGTERM."""
        self._ending = asyncio.Event()
        self._finished = asyncio.Event()
        self._over = False
        self._restarts = 0
        self._reason = ""
        self._last: dict[str, Any] = {}
        self.codes: list[int] = []
        """Exit codes of its container, one a start."""
        self._began = time(self._clock.now())

    @property
    def pid(self) -> int | None:
        """Of the container's process, while it runs."""
        return None if self._process is None else self._process.pid

    def kill(self, reason: str = "") -> None:
        """The container ends at once; `reason` is what the kubelet says of it, such as OOMKilled."""
        self._reason = reason
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """It stands still."""
        self._signal(signal.SIGSTOP)

    async def evict(self, why: str) -> None:
        """The kubelet ends the pod because its node runs short."""
        self._over = True
        self._signal(signal.SIGKILL)
        await self._say("Failed", reason="Evicted", message=why)

    def vanish(self) -> None:
        """Its node is gone."""
        self._over = True
        self._signal(signal.SIGKILL)

    async def run(self) -> None:
        """Start it, and again as its restart policy says, until it shall end."""
        try:
            await self._run()
        finally:
            self._finished.set()

    async def _run(self) -> None:
        if str(self._container.get("image", "")).startswith(MISSING):
            waiting = {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {self._container['image']}"}
            await self._say("Pending", {"waiting": waiting})
            return
        if not await self._is_given():
            return
        backoff = FIRST_BACKOFF
        while not self._over:
            code = await self._run_once()
            if self._is_over():
                return
            if self._ending.is_set():  # a kubelet tells how it ended before it lets the object go
                await self._say("Failed" if code else "Succeeded", self._last)
                return
            policy = self.pod["spec"].get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                await self._say("Failed" if code else "Succeeded", self._last)
                return
            self._restarts += 1
            message = f"back-off {backoff:g}s restarting failed container"
            await self._say("Running", {"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff):
                    await self._ending.wait()
            backoff = min(backoff * 2, LONGEST_BACKOFF)

    async def _is_given(self) -> bool:
        """Whether it got its volumes and values, which it waits for as a kubelet does; not, when it shall end."""
        told = ""
        while not self._ending.is_set():
            try:
                self._mounts = await self._mount(self.pod, self.notes.folder)
            except Missing as missing:
                if str(missing) != told:
                    told = str(missing)
                    await self._say("Pending", {"waiting": {"reason": missing.reason, "message": told}})
            except ApiUnavailable:
                pass  # the API server is away, as kubelets see it too
            else:
                return True
            await asyncio.sleep(LOOKED_AGAIN)
        return False

    def _is_over(self) -> bool:
        return self._over

    async def _run_once(self) -> int:
        """From the start of the process to its end: its exit code."""
        argv, env = self._command()
        began = time(self._clock.now())
        try:
            with self.log.open("ab") as log:
                where = self._container.get("workingDir")
                self._process = await asyncio.create_subprocess_exec(
                    *argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    cwd=None if where is None else self._mounts.mapped(where),
                )  # fmt: skip
        except OSError as error:
            self._last = {"terminated": {"exitCode": 128, "reason": "StartError", "message": str(error)}}
            return 128
        if self._ending.is_set():
            self._signal(signal.SIGKILL)
        watching = asyncio.create_task(self._watch_readiness(began))
        code = await self._process.wait()
        watching.cancel()
        self._process = None
        exit_code = 128 - code if code < 0 else code
        self.codes.append(exit_code)
        reason = self._reason or ("Completed" if exit_code == 0 else "Error")
        self._last = {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": began,
                                     "finishedAt": time(self._clock.now()),
                                     "message": self.notes.last_words()}}  # fmt: skip
        self._reason = ""
        return exit_code

    async def _watch_readiness(self, began: str) -> None:
        """Ready at once without a readiness probe, else when it answers."""
        running = {"running": {"startedAt": began}}
        probe = self._container.get("readinessProbe", {}).get("httpGet")
        if probe is None:
            await self._say("Running", running, ready=True)
            return
        await self._say("Running", running)
        url = f"http://{self.address}:{self._port(probe['port'])}{probe.get('path', '/')}"
        period = float(self._container["readinessProbe"].get("periodSeconds", 10))
        ready = False
        async with aiohttp.ClientSession() as session:
            while True:
                now = await _answers(session, url)
                if now != ready:
                    ready = now
                    await self._say("Running", running, ready=ready)
                await asyncio.sleep(min(period, 1.0))

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(int(one["containerPort"]) for one in self._container["ports"] if one.get("name") == port)

    async def terminate(self, grace: float) -> None:
        """The hook's sleep, SIGTERM, after `grace` SIGKILL; returns when the process is gone. Once more with a shorter
        grace: that one counts, and SIGTERM is not sent twice."""
        self._ending.set()
        process = self._process
        if process is None:
            return
        hook = _seconds(self._container.get("lifecycle", {}).get("preStop", {}))
        if hook and grace:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(hook, grace)):
                    await process.wait()
            grace = max(2.0, grace - hook)
        if self._asked is not process:
            self._asked = process
            self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await process.wait()
        with contextlib.suppress(TimeoutError):  # how it ended is told first
            async with asyncio.timeout(5):
                await self._finished.wait()

    async def close(self) -> None:
        """End it at once."""
        self._over = True
        await self.terminate(0.0)
        with contextlib.suppress(TimeoutError):  # it tells of its end, and nobody may listen any more
            async with asyncio.timeout(5):
                await self._finished.wait()

    def _signal(self, number: int) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What a kubelet would run: references to variables filled in, and no environment but the pod's."""
        values = dict(self._mounts.values)
        for one in self._container.get("env", []):
            values[one["name"]] = _filled(one["value"], values) if "value" in one else self._field(one["valueFrom"])
        words = [*self._container.get("command", []), *self._container.get("args", [])]
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # the "image" has this Python
        argv = [self._mapped(_filled(word, values)) for word in words]
        own = {"PATH": path, "HOME": str(self.log.parent), "PYTHONPATH": ROOT, **self._mounts.environment}
        return argv, own | {name: self._mapped(value) for name, value in values.items()}

    def _mapped(self, text: str) -> str:
        """A process has no mounts and no network of its own: paths of volumes, and all addresses, as they are here."""
        return self.address if text in ALL_ADDRESSES else self.notes.mapped(self._mounts.mapped(text))

    def _field(self, source: Json) -> str:
        where = source["fieldRef"]["fieldPath"]
        keyed = _KEYED.fullmatch(where)
        if keyed is not None:
            return str(self.pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
        known = {"status.podIP": self.address, "metadata.name": self.pod["metadata"]["name"],
                 "metadata.namespace": self.pod["metadata"]["namespace"], "spec.nodeName": self.node}  # fmt: skip
        return str(known[where])

    async def _say(
        self, phase: str, state: dict[str, Any] | None = None, *, ready: bool = False, reason: str = "",
        message: str = "",
    ) -> None:  # fmt: skip
        now = time(self._clock.now())
        truth = "True" if ready else "False"
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": now}
            for kind, status in (("PodScheduled", "True"), ("Initialized", "True"), ("ContainersReady", truth),
                                 ("Ready", truth))
        ]  # fmt: skip
        status: dict[str, Any] = {"phase": phase, "conditions": conditions, "startTime": self._began,
                                  "hostIP": "127.0.0.1", "podIP": self._told_address,
                                  "podIPs": [{"ip": self._told_address}],
                                  "reason": reason or None, "message": message or None}  # fmt: skip
        if state:
            status["containerStatuses"] = [{
                "name": self._container["name"], "image": self._container.get("image", ""), "imageID": "tests",
                "ready": ready, "restartCount": self._restarts, "started": "running" in state, "state": state,
                "lastState": self._last if "terminated" not in state else {},
            }]  # fmt: skip
        metadata = self.pod["metadata"]
        await self._tell(Told(metadata["namespace"], metadata["name"], self.uid, self.node, status))


def _seconds(hook: Json) -> float:
    """How long a preStop hook takes: one that sleeps, by itself or by a program."""
    command = hook.get("exec", {}).get("command", [])
    if command:
        assert command[0] == "sleep", f"the tests' kubelet runs no hook but sleep: {command}"
        return float(command[1])
    return float(hook.get("sleep", {}).get("seconds", 0))


def _filled(text: str, values: dict[str, str]) -> str:
    """``$(NAME)`` of variables that are known; others stay, as Kubernetes has it."""
    return _REFERENCE.sub(lambda match: values.get(match[1], match[0]), text)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as answer:
            return answer.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
