"""`relume doctor`: what is wrong with relume on a Kubernetes cluster, and what to do about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import aiohttp
import click

from deploy.cli.commands import command
from deploy.cli.installing import kube_options, on_api
from deploy.cli.options import output
from deploy.cli.output import say, show_json, show_table
from deploy.cli.setting_options import KAFKA_ACCESS, setting_options, settings_given
from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.packaging import NAME
from deploy.kubernetes.packaging_doctor import Check, Doctor, State, as_json
from deploy.settings.events_url import KafkaEvents
from deploy.settings.settings import Settings, SettingsRefused
from events.log import EventLogError

ASKED_WITHIN: Final = aiohttp.ClientTimeout(total=10.0)
"""For Prometheus: its own bound for a query is two minutes, and this one takes milliseconds."""
_INSIDE: Final = "relume doctor in relume's own pod: addresses may be reachable there only"


@command("doctor", (
    "relume doctor -n models",
    "relume doctor -n models --events kafka://b1:9092 --prometheus http://prometheus:9090",
    "relume doctor -n models -o json",
    "kubectl -n models exec deploy/relume -- relume doctor -n models",
))  # fmt: skip
@kube_options
@click.option("--name", default=NAME, show_default=True, help="What the installation is called: Helm's release.")
@setting_options(("events", *KAFKA_ACCESS, "prometheus"))
@output("table", "json")
def doctor(output: str, namespace: str, kubeconfig: Path | None, context: str, name: str, **given: str | None) -> int:
    """Check relume on Kubernetes: the API server's version, definitions, processes, rights, GPUs, Kafka, Prometheus.

    Each finding has its remedy. Rights are asked for relume's accounts, verb by verb; in relume's own pod for itself.
    Exit code 1 when a check failed; warnings, and what could not be checked, do not count.
    """
    settings = settings_given(given)

    async def look(api: KubeApi) -> list[Check]:
        return await Doctor(api, namespace, name).look()

    checks = [*on_api(kubeconfig, context, look), _kafka(settings), asyncio.run(_prometheus(settings.prometheus))]
    if output == "json":
        show_json({"items": [as_json(check) for check in checks]})
    else:
        show_table(("CHECK", "STATE", "FINDING"), [(one.name, one.state.value, one.told) for one in checks])
        for one in checks:
            if one.remedy:
                say(f"{one.name}: try: {one.remedy}")
    return 1 if any(check.state is State.FAILED for check in checks) else 0


def _kafka(settings: Settings) -> Check:
    url = settings.events_url
    if not isinstance(url, KafkaEvents):
        return Check("Kafka", State.SKIPPED, "--events names none")
    from deploy.compose import topics  # noqa: PLC0415 - only with Kafka

    where = ",".join(url.servers)
    try:
        state = topics.check(settings, url.servers)
    except (EventLogError, SettingsRefused) as error:
        return Check("Kafka", State.FAILED, f"{where}: {error}", f"do the brokers run, is --events right? Or {_INSIDE}")
    if state.problems:
        return Check("Kafka", State.WARNING, f"{where}: {'; '.join(state.problems)}", "relume topics check")
    return Check("Kafka", State.OK, f"{where}: all topics are fit")


async def _prometheus(url: str | None) -> Check:
    if url is None:
        return Check("Prometheus", State.SKIPPED, "--prometheus names none")
    try:
        async with (
            aiohttp.ClientSession(timeout=ASKED_WITHIN) as session,
            session.get(f"{url.rstrip('/')}/api/v1/query", params={"query": "vector(1)"}) as answer,
        ):
            status, said = answer.status, (await answer.text())[:200]
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return Check(
            "Prometheus", State.FAILED, f"{url}: {str(error) or type(error).__name__}", f"is it right? Or {_INSIDE}"
        )
    if status != 200 or '"success"' not in said:
        return Check(
            "Prometheus", State.FAILED, f"{url}: {status} {said}", "is it a Prometheus, and does it let us in?"
        )
    return Check("Prometheus", State.OK, f"{url} answers queries")
