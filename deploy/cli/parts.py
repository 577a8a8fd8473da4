"""`relume gateway`, `autoscaler`, `cluster`, `agent`: parts of relume as processes of their own, on a shared log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from deploy.cli.commands import command, importing
from deploy.cli.failing import Refused
from deploy.cli.setting_options import setting_options, settings_given
from deploy.settings.events_url import KafkaEvents, MemoryEvents
from deploy.settings.settings import Settings, SettingsRefused

_FIRST: Final = ("events", "node_name", "data_dir")
_GATEWAY: Final = ("gateway_", "max_body", "hold_", "access_log", "peer_", "inference_")
_AUTOSCALER: Final = ("kafka_clusters", "prometheus", "prometheus_servers")
_CLUSTER: Final = ("gpus", "gpu_limiter", "cpu", "memory", "sleep_memory", "adopt_within", "cluster", "kube")
_AGENT: Final = ("cache_", "pod_resources")
_DRAINING: Final = ("drain_bound",)


def _options(*own: str) -> tuple[str, ...]:
    """What a part takes: what all take, and its own; the shared log's come last."""
    others = tuple({*_GATEWAY, *_AUTOSCALER, *_CLUSTER, *_AGENT, *_DRAINING} - set(own))
    names = [name for name in Settings.model_fields if name not in _FIRST and not name.startswith(others)]
    return (*_FIRST, *sorted(names, key=lambda name: (name.startswith("kafka_"), not (own and name.startswith(own)))))


@command("gateway", (
    "relume gateway --events kafka://localhost:9092",
    "relume gateway --events kafka://b1:9092,b2:9092 --node-name gw-2 --gateway-host 0.0.0.0",
    "relume gateway --events kafka://b1:9092 --node-name gw-2 --peer-address 10.0.0.2:8082 --peer-secret-file secret",
    "relume gateway --events kafka://localhost:9092 --gateway-port 9000 --admin-port 9001",
))  # fmt: skip
@setting_options(_options(*_GATEWAY, *_DRAINING))
def gateway(**given: str | None) -> int:
    """Run a gateway in the foreground: it takes requests, holds them, and relays them to replicas.

    It serves what is warm also while all other parts of relume, or Kafka, are away. Every option is also an environment
    variable. SIGTERM and Ctrl-C drain: held requests get 503, running streams finish within --drain-bound, then it ends
    with exit code 0; with 1 when it cannot start or go on.
    """
    return _run("gateway", given)


@command("autoscaler", (
    "relume autoscaler --events kafka://localhost:9092",
    "relume autoscaler --events kafka://b1:9092,b2:9092 --admin-port 0 --log-format json",
))  # fmt: skip
@setting_options(_options(*_AUTOSCALER))
def autoscaler(**given: str | None) -> int:
    """Run an autoscaler in the foreground: it follows demand and decides how many replicas each model shall have.

    While none runs nothing is scaled, and what is warm serves on. Every option is also an environment variable. SIGTERM
    and Ctrl-C end it with exit code 0; it is 1 when it cannot start or go on.
    """
    return _run("autoscaler", given)


@command("cluster", (
    "relume cluster --events kafka://localhost:9092 -f model.yaml",
    "relume cluster --events kafka://b1:9092,b2:9092 --node-name gpu-1 --gpus 8",
    "relume cluster --events kafka://b1:9092 --cluster kubernetes --kube-namespace models",
))  # fmt: skip
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Declare these models first; file or folder."
)
@setting_options(_options(*_CLUSTER, *_AGENT, *_DRAINING))
def cluster(files: Sequence[str], **given: str | None) -> int:
    """Run the cluster in the foreground: it grants replicas what there is, and starts and stops them on this machine,
    or, with --cluster kubernetes, as pods.

    One of them leads; another one stands by and takes over when it ends. Replicas of a cluster that died serve on for
    --adopt-within, and the next one on the same data folder takes them over. Every option is also an environment
    variable. SIGTERM and Ctrl-C drain the replicas within --drain-bound and end it with exit code 0; it is 1 when
    it cannot start or go on.
    """
    return _run("cluster", given, tuple(files))


@command("agent", (
    "relume agent --events kafka://localhost:9092 --data-dir /var/lib/relume",
    "relume agent --events kafka://b1:9092,b2:9092 --node-name gpu-1 --cache-capacity 500Gi",
))  # fmt: skip
@setting_options(_options(*_AGENT))
def agent(**given: str | None) -> int:
    """Run the agent of a node's weights in the foreground: it fetches, verifies, keeps and tells of them.

    A relume cluster on the same data folder brings an agent of its own, which stands by while this one runs and has it
    fetch. With --events memory: it fetches what it is asked for, fetches nothing ahead, and tells nobody. Every option
    is also an environment variable. SIGTERM and Ctrl-C end it with exit code 0; it is 1 when it cannot start or go on.
    """
    return _run("agent", given)


def _run(role: str, given: dict[str, str | None], files: tuple[str, ...] = ()) -> int:
    settings = settings_given(given)
    alone = role == "agent" and isinstance(settings.events_url, MemoryEvents)  # asked over HTTP by who starts pods
    if not isinstance(settings.events_url, KafkaEvents) and not alone:
        said = f"--events is {settings.events}" if settings.events else "--events is not given"
        raise click.UsageError(
            f"{said}, and relume {role} is one process of several, which need an event log that they share: give "
            "--events kafka://HOST:PORT or set RELUME_EVENTS. With memory: and sqlite: one process runs everything: "
            "relume up."
        )
    with importing():
        from deploy.compose.roles import Role  # noqa: PLC0415 - everything that runs; not for --help
        from deploy.compose.up import run  # noqa: PLC0415 - as above

    try:
        return run(settings, files, Role(role))
    except SettingsRefused as refused:
        raise Refused(f"relume {role} cannot start with these settings", why=str(refused)) from refused
