"""Controllers of other projects beside the tests' control plane: JobSet, the training operator, Kueue, LeaderWorkerSet.

Built by hand, never by tests: `python -m tests.support.kube_foreign` takes two to four minutes of a core for each. Then
they are files under ~/.cache/relume (or RELUME_KUBE_CACHE), with the definitions and webhooks of the same module beside
them. They run as administrators of the control plane; their webhooks are asked on loopback.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from ruamel.yaml import YAML

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.resources import DEFINITIONS, Resource
from tests.support.kafka_broker import free_port
from tests.support.kube_plane import ControlPlane

READY_WITHIN: Final = 120.0
"""Seconds; they take 2 to 10 on a free machine."""
_HOOKS: Final = {
    kind: Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}


OPERATOR_SPACE: Final = "kubeflow"
OPERATOR_HOOKS: Final = "validator.training-operator.kubeflow.org"
CERTIFICATES: Final = {
    "training-operator": Path("/tmp/k8s-webhook-server/serving-certs"), "kueue": Path("/etc/kueue/metrics/certs"),
}  # fmt: skip
"""Where they look for some; they cannot be told otherwise."""


@dataclass(frozen=True)
class Program:
    """A controller: its module at a version, with its hash as Go's checksum database has it, and where in it things
    are. `kinds`: of which groups and plurals its definitions and webhooks are taken; empty: of all."""

    name: str
    module: str
    version: str
    digest: str
    main: str
    definitions: str
    hooks: str
    kinds: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """Where it is kept."""
        root = os.environ.get("RELUME_KUBE_CACHE") or Path.home() / ".cache" / "relume"
        made_of = hashlib.sha256(repr(self).encode()).hexdigest()[:16]
        return Path(root) / f"foreign-{self.name}-{made_of}"

    @property
    def binary(self) -> Path:
        """Its program, once built."""
        return self.home / self.name

    def there(self) -> bool:
        """Whether it is built, and its stories are asked for."""
        return os.environ.get("RELUME_FOREIGN") == "1" and self.binary.exists()


JOB_SET: Final = Program(
    "jobset", "sigs.k8s.io/jobset", "v0.12.0", "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=", ".",
    "config/components/crd/bases", "config/components/webhook/manifests.yaml",
)  # fmt: skip
TRAINING_OPERATOR: Final = Program(
    "training-operator", "github.com/kubeflow/training-operator", "v1.9.3",
    "h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
    "./cmd/training-operator.v1", "manifests/base/crds", "manifests/base/webhook/manifests.yaml", ("pytorchjobs",),
)  # fmt: skip
KUEUE: Final = Program(
    "kueue", "sigs.k8s.io/kueue", "v0.17.0", "h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=", "./cmd/kueue",
    "config/components/crd/bases", "config/components/webhook/manifests.yaml",
    ("jobs", "jobsets", "workloads", "clusterqueues", "localqueues", "resourceflavors", "cohorts"),
)  # fmt: skip
LEADER_WORKER_SET: Final = Program(
    "lws", "sigs.k8s.io/lws", "v0.8.0", "h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=", "./cmd",
    "config/crd/bases", "config/webhook/manifests.yaml",
)  # fmt: skip
PROGRAMS: Final = (JOB_SET, TRAINING_OPERATOR, KUEUE, LEADER_WORKER_SET)
_SETTINGS: Final = {
    JOB_SET: "config.jobset.x-k8s.io/v1alpha1", KUEUE: "config.kueue.x-k8s.io/v1beta2",
    LEADER_WORKER_SET: "config.lws.x-k8s.io/v1alpha1",
}  # fmt: skip
"""The version of each one's file of settings."""


def build(program: Program) -> Path:
    """Build one where it is not there yet. Raises CalledProcessError, ValueError (another module than was meant)."""
    if program.binary.exists():
        return program.binary
    told = _go(["mod", "download", "-json", f"{program.module}@{program.version}"], Path("/"))
    found = json.loads(told)
    if found["Sum"] != program.digest:
        raise ValueError(f"{program.module} {program.version} is {found['Sum']}, and was {program.digest}")
    source = Path(found["Dir"])
    program.home.mkdir(parents=True, exist_ok=True)
    partial = program.home / "partial"
    _go(["build", "-p", "2", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), program.main], source)
    shutil.copytree(source / program.definitions, program.home / "definitions", dirs_exist_ok=True)
    shutil.copyfile(source / program.hooks, program.home / "hooks.yaml")
    partial.replace(program.binary)
    return program.binary


def _go(words: list[str], where: Path) -> str:
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod" if words[0] == "mod" else "-buildvcs=false",
                "GOGC": "400"}  # fmt: skip
    done = subprocess.run(
        ["go", *words], cwd=where, env={**os.environ, **settings}, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


@asynccontextmanager
async def controller(plane: ControlPlane, api: KubeApi, program: Program, folder: Path) -> AsyncIterator[Path]:
    """The controller with its kinds and webhooks, until the end; its log."""
    place = folder / program.name
    place.mkdir()
    shutil.copyfile(plane.papers.server, place / "tls.crt")
    shutil.copyfile(plane.papers.server_key, place / "tls.key")
    fixed = CERTIFICATES.get(program.name)
    if fixed is not None:
        shutil.copytree(place, fixed, dirs_exist_ok=True)
    hooks, probes = free_port(), free_port()
    bodies = _documents(program)
    for body in bodies:
        await api.apply(DEFINITIONS.path("", body["metadata"]["name"]), body, {"fieldManager": "tests"})
    await _until_served(api, bodies)
    if program is TRAINING_OPERATOR:
        await _operators_own(api)
    made = await _hooks(api, program, plane, hooks)
    log = place / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program.binary), *_flags(program, place, hooks, probes), stdout=output, stderr=output,
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)}, start_new_session=True,
        )  # fmt: skip
    try:
        await _until_ready(process, f"http://127.0.0.1:{probes}/readyz", log)
        if program is LEADER_WORKER_SET:  # it says so before its webhooks listen
            await _until_listening(hooks)
        yield log
    finally:
        for path in made:
            await api.delete(path)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if fixed is not None:
            shutil.rmtree(fixed)


def _flags(program: Program, place: Path, hooks: int, probes: int) -> list[str]:
    if program is TRAINING_OPERATOR:
        return [
            "--enable-scheme=pytorchjob", f"--webhook-server-port={hooks}", "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
        ]  # fmt: skip
    settings: dict[str, Any] = {
        "apiVersion": _SETTINGS[program], "kind": "Configuration", "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False}, "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
        "webhook": {"port": hooks, "certDir": str(place)},
    }  # fmt: skip
    if program is KUEUE:
        settings |= {"integrations": {"frameworks": ["batch/job"]}, "featureGates": {"VisibilityOnDemand": False}}
    path = place / "config.yaml"
    path.write_text(json.dumps(settings))
    return [f"--config={path}"]


def _documents(program: Program) -> list[dict[str, Any]]:
    yaml = YAML(typ="safe", pure=True)
    found = [yaml.load(path) for path in sorted((program.home / "definitions").glob("*_*.yaml"))]
    kinds = program.kinds if program is TRAINING_OPERATOR else ()
    return [one for one in found if not kinds or one["spec"]["names"]["plural"] in kinds]


async def _hooks(api: KubeApi, program: Program, plane: ControlPlane, port: int) -> list[str]:
    """Its webhook configurations, whose Service is a port of this machine; of the kinds that the tests use. The
    operator's only reject what is wrong, and its certificate is for a Service: it gets an empty one."""
    text = (program.home / "hooks.yaml").read_text()
    made = []
    for body in (one for one in YAML(typ="safe", pure=True).load_all(text) if one):
        hooks = [_on_loopback(one, plane, port) for one in body["webhooks"] if _is_wanted(program, one)]
        name = OPERATOR_HOOKS if program is TRAINING_OPERATOR else f"{program.name}-{body['metadata']['name']}"
        path = _HOOKS[body["kind"]].path("", name)
        await api.apply(path, {**body, "metadata": {"name": name}, "webhooks": hooks}, {"fieldManager": "tests"})
        made.append(path)
    return made


def _is_wanted(program: Program, hook: Mapping[str, Any]) -> bool:
    if program is TRAINING_OPERATOR:
        return False
    asked = {one for rule in hook["rules"] for one in rule["resources"]}
    return not program.kinds or asked <= set(program.kinds)


def _on_loopback(hook: Mapping[str, Any], plane: ControlPlane, port: int) -> dict[str, Any]:
    authority = base64.b64encode(plane.papers.authority.read_bytes()).decode()
    url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
    return {**hook, "clientConfig": {"url": url, "caBundle": authority}}


async def _operators_own(api: KubeApi) -> None:
    """The operator makes its own certificates: it wants a Secret to keep them in."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_SPACE}}
    await api.apply(f"/api/v1/namespaces/{OPERATOR_SPACE}", space, {"fieldManager": "tests"})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "training-operator-webhook-cert"}}
    path = f"/api/v1/namespaces/{OPERATOR_SPACE}/secrets/training-operator-webhook-cert"
    await api.apply(path, secret, {"fieldManager": "tests"})


async def _until_served(api: KubeApi, bodies: list[dict[str, Any]]) -> None:
    async with asyncio.timeout(READY_WITHIN):
        for body in bodies:
            spec = body["spec"]
            version = next(one["name"] for one in spec["versions"] if one["served"])
            while not await _answers(api, f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"):  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.2)


async def _answers(api: KubeApi, path: str) -> bool:
    try:
        await api.get(path, {"limit": "1"})
    except (ApiError, ApiUnavailable):
        return False
    return True


async def _until_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(READY_WITHIN), aiohttp.ClientSession() as session:
            while process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass
    said = await asyncio.to_thread(log.read_text, errors="replace")
    raise AssertionError(f"the controller is not ready: {said[-3000:]}")


async def _until_listening(port: int) -> None:
    async with asyncio.timeout(READY_WITHIN):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                writer.close()
                return


if __name__ == "__main__":
    for wanted in PROGRAMS:
        if sys.argv[1:] in ([], [wanted.name]):
            sys.stdout.write(f"{build(wanted)}\n")
