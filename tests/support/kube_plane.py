"""A real Kubernetes control plane for tests: etcd, API server, controller manager and scheduler as local processes.

One is started for all tests of a process (`shared_plane`); each test has a namespace of its own. What a test does to
it (`kill_api_server`, `cut`) it undoes with `revive`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.kubernetes.crd import definitions
from deploy.kubernetes.resources import DEFINITIONS
from tests.support.kafka_broker import end_with_this_process, free_port
from tests.support.kube_binary import binary
from tests.support.kube_certificates import Papers, write_papers
from tests.support.standing_still import freeze

READY_WITHIN: Final = 180.0
"""Seconds; all four take 5 on a free machine."""
SERVICES: Final = "10.0.0.0/16"
ISSUER: Final = "https://kubernetes.default.svc"


class ControlPlane:
    """The four programs, with their data under `folder`. A node is lost after `node_grace` seconds of silence."""

    def __init__(self, folder: Path, node_grace: int = 10) -> None:
        self.folder = folder
        self._node_grace = node_grace
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._etcd, self._etcd_peer, self._controllers, self._scheduler = (free_port() for _ in range(4))
        self.papers: Papers = write_papers(folder)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = self.kubeconfig_of("admin")

    @property
    def url(self) -> str:
        """Where the API server is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def etcd_url(self) -> str:
        """Where etcd is."""
        return f"http://127.0.0.1:{self._etcd}"

    def kubeconfig_of(self, user: str, token: str | None = None) -> Path:
        """A kubeconfig file of a user of `papers`, or of a token."""
        path = self.folder / f"{user}.kubeconfig"
        known = self.papers.tokens[user] if token is None else token
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "clusters": [{"name": "tests", "cluster": {
                "server": self.url, "certificate-authority": str(self.papers.authority)}}],
            "users": [{"name": user, "user": {"token": known}}],
        }  # fmt: skip
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def start(self) -> None:
        """Start all four; returns when they are healthy."""
        self._start("etcd", self._etcd_flags())
        self._until("etcd", f"http://127.0.0.1:{self._etcd}/health")
        self.start_api_server()
        self._define()  # before the controller manager, which looks for new kinds each half minute only
        for name, flags, port in (
            ("kube-controller-manager", self._controller_flags(), self._controllers),
            ("kube-scheduler", self._scheduler_flags(), self._scheduler),
        ):
            self._start(name, flags)
            self._until(name, f"https://127.0.0.1:{port}/healthz")

    def _define(self) -> None:
        """Tell the API server of our kinds."""
        context = ssl.create_default_context(cafile=str(self.papers.authority))
        headers = {"Authorization": f"Bearer {self.papers.tokens['admin']}", "Content-Type": "application/json"}
        for definition in definitions():
            body = json.dumps(definition).encode()
            request = urllib.request.Request(f"{self.url}{DEFINITIONS.path()}", body, headers, method="POST")
            try:
                urllib.request.urlopen(request, timeout=30, context=context).close()
            except urllib.error.HTTPError as error:
                raise AssertionError(json.loads(error.read())["message"]) from error

    def start_api_server(self) -> None:
        """Start it on the port it had before; returns when it is ready."""
        self._start("kube-apiserver", self._api_server_flags())
        self._until("kube-apiserver", f"{self.url}/readyz")

    def kill_api_server(self) -> None:
        """End it at once. (In order it would take a minute with watches open.)"""
        self._end("kube-apiserver", signal.SIGKILL)

    def freeze_api_server(self) -> None:
        """It stands still with its connections open."""
        freeze(self._processes["kube-apiserver"].pid)

    def revive(self) -> None:
        """Whatever was done to the API server: it runs again."""
        if "kube-apiserver" not in self._processes:
            self.start_api_server()
        else:
            self._processes["kube-apiserver"].send_signal(signal.SIGCONT)
            self._until("kube-apiserver", f"{self.url}/readyz")

    def stop(self) -> None:
        """End all, at once: nothing of it is kept."""
        for name in reversed(list(self._processes)):
            self._end(name, signal.SIGKILL)

    # How they are run.

    def _start(self, name: str, flags: Sequence[str]) -> None:
        assert name not in self._processes, f"{name} runs already"
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(binary()), name, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes[name] = process
        _alive.add(process)

    def _end(self, name: str, number: int) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(20)
        _alive.discard(process)

    def _until(self, name: str, url: str) -> None:
        context = ssl.create_default_context(cafile=str(self.papers.authority))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # some have a certificate of their own
        headers = {"Authorization": f"Bearer {self.papers.tokens['admin']}"}
        deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
        while time.monotonic() < deadline and self._processes[name].poll() is None:  # noqa: TID251 - as above
            with contextlib.suppress(OSError, urllib.error.URLError):
                request = urllib.request.Request(url, headers=headers)
                with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.1)
        said = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{name} is not healthy: {said}")

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._etcd_peer}"
        return [
            f"--data-dir={self.folder / 'etcd'}", "--name=default", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--unsafe-no-fsync", "--log-level=warn",
        ]  # fmt: skip

    def _api_server_flags(self) -> list[str]:
        papers = self.papers
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}", "--bind-address=127.0.0.1", f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={papers.server}", f"--tls-private-key-file={papers.server_key}",
            f"--client-ca-file={papers.authority}", f"--token-auth-file={papers.token_file}",
            "--authorization-mode=Node,RBAC", f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-issuer={ISSUER}", f"--service-account-signing-key-file={papers.account_key}",
            f"--service-account-key-file={papers.account_key}", "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction", "--profiling=false",
            f"--audit-policy-file={papers.audit_policy}", f"--audit-log-path={self.folder / 'audit.log'}",
            "--audit-log-mode=blocking",
        ]  # fmt: skip

    def _controller_flags(self) -> list[str]:
        papers = self.papers
        return [
            f"--kubeconfig={self.kubeconfig_of('kcm')}", f"--service-account-private-key-file={papers.account_key}",
            f"--root-ca-file={papers.authority}", "--leader-elect=false", "--use-service-account-credentials=true",
            "--bind-address=127.0.0.1", f"--secure-port={self._controllers}",
            f"--cert-dir={self.folder / 'controllers'}", "--kube-api-qps=1000", "--kube-api-burst=2000",
            "--node-monitor-period=1s", f"--node-monitor-grace-period={self._node_grace}s", "--profiling=false",
        ]  # fmt: skip

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig_of('sched')}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={self._scheduler}", f"--cert-dir={self.folder / 'scheduler'}", "--profiling=false",
        ]  # fmt: skip


_alive: set[subprocess.Popen[bytes]] = set()


def _end_all() -> None:
    for process in list(_alive):
        process.kill()
        process.wait(20)


atexit.register(_end_all)


@functools.cache
def shared_plane() -> ControlPlane:
    """The one control plane of this process's tests, started when first asked for."""
    end_with_this_process()
    plane = ControlPlane(Path(tempfile.mkdtemp(prefix="relume-kube-")))
    atexit.register(shutil.rmtree, plane.folder, ignore_errors=True)
    atexit.register(_end_all)  # before the folder goes: the last registered runs first
    plane.start()
    return plane


def end_shared() -> None:
    """End the shared one, if there is one; who asks again gets a new one."""
    if shared_plane.cache_info().currsize:
        plane = shared_plane()
        shared_plane.cache_clear()
        plane.stop()
        shutil.rmtree(plane.folder, ignore_errors=True)
