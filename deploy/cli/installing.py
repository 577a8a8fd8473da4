"""`relume install` and `relume uninstall`: relume itself on a Kubernetes cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from deploy.cli.commands import command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import say, show_json, show_table, show_yaml
from deploy.cli.versions import installed_version
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, KubernetesMissing, connect
from deploy.kubernetes.packaging import Wanted, definition_objects, objects
from deploy.kubernetes.packaging_apply import Installer, NotInstalled, Outcome
from deploy.settings.events_url import KafkaEvents, parse_events_url

T = TypeVar("T")
Function = Callable[..., Any]
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def kube_options(function: Function) -> Function:
    """Which cluster and namespace are meant, as kubectl's options say it."""
    options = (
        click.option("-n", "--namespace", default="default", show_default=True, envvar="RELUME_KUBE_NAMESPACE",
                     show_envvar=True, help="The namespace of relume and of its models."),
        click.option("--kubeconfig", type=_FILE, envvar="RELUME_KUBECONFIG", show_envvar=True,
                     help="How the cluster is reached. Default: a pod's account, else your own kubeconfig."),
        click.option("--context", default="", help="The context in the kubeconfig. Default: its current one."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@command("install", (
    "relume install -n models --create-namespace --image registry.example/relume:0.1.0",
    "relume install -n models --image registry.example/relume:0.1.0 --events kafka://b1:9092,b2:9092",
    "relume install -n models --image registry.example/relume:0.1.0 --agent  # remote weights, kept on each node",
    "relume install -n models --image registry.example/relume:0.1.0 --dry-run",
    "relume install -n models --image registry.example/relume:0.1.0 -o yaml > relume.yaml",
    "relume install --only-crds                # an upgrade of the definitions alone",
))  # fmt: skip
@kube_options
@click.option("--image", help="The image of relume: yours, made of the Dockerfile; none is published.")
@click.option(
    "--events", help="kafka://HOST:PORT[,…]: parts apart on Kafka. Default: one process, its log on a volume."
)
@click.option("--prometheus", help="The Prometheus server that models ask when they name none.")
@click.option("--agent", is_flag=True, help="An agent on each node, for weights at hf://, s3:// and other addresses.")
@click.option("--create-namespace", is_flag=True, help="Make the namespace if it is missing.")
@click.option("--only-crds", is_flag=True, help="The definitions of our kinds, and nothing else.")
@click.option("--without-crds", is_flag=True, help="Everything but the definitions.")
@click.option("--dry-run", is_flag=True, help="Have the API server check everything and change nothing.")
@output("table", "json", "yaml")
def install(output: str, **given: Any) -> int:
    """Install relume on Kubernetes, or bring it up to date: server-side apply, by one field manager.

    What it applies is what the Helm chart makes with its defaults; who needs more takes the chart. With -o yaml the
    objects are printed and no cluster is asked. Secrets are made when they are missing, and kept when they are there.
    Where the Prometheus operator is installed a ServiceMonitor is made.
    """
    wanted = _wanted(given)
    crds, rest = not given["without_crds"], not given["only_crds"]
    if output == "yaml":
        version = installed_version()
        show_yaml([*(definition_objects(version) if crds else ()), *(objects(wanted) if rest else ())])
        return 0

    async def work(api: KubeApi) -> list[Outcome]:
        installer = Installer(api, installed_version(), dry=given["dry_run"])
        told = await installer.definitions() if crds else []
        if rest:
            told += await installer.everything(wanted, create_namespace=given["create_namespace"])
        return told

    _show(_on_cluster(given, work), output)
    return 0


@command("uninstall", (
    "relume uninstall -n models                # models, their pods and the event log stay",
    "relume uninstall -n models --data --crds  # all of it goes",
    "relume uninstall -n models --dry-run -o json",
))  # fmt: skip
@kube_options
@click.option("--data", is_flag=True, help="The volume with the event log too.")
@click.option(
    "--crds", is_flag=True, help="The definitions too: all Models and TrainingJobs of the cluster go, and their pods."
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@output("table", "json")
def uninstall(output: str, **given: Any) -> int:
    """Take away what `relume install` made. Models, their pods and the event log stay, unless they are named.

    What Helm or another hand installed is kept, and told. Without relume pods go on, and nobody scales them.
    """
    both = [Wanted(given["namespace"], "", kafka, agents=True, monitored=True) for kafka in ("", "b:9092")]

    async def work(api: KubeApi) -> list[Outcome]:
        installer = Installer(api, installed_version(), dry=given["dry_run"])
        return await installer.remove(both, data=given["data"], crds=given["crds"])

    _show(_on_cluster(given, work), output)
    return 0


def on_api(kubeconfig: Path | None, context: str, work: Callable[[KubeApi], Awaitable[T]]) -> T:
    """Do some work on the cluster. Refused tells why it cannot be reached."""

    async def connected() -> T:
        api = await connect(kubeconfig, context)
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(connected())
    except KubernetesMissing as error:
        raise Refused("no cluster can be asked", why=str(error)) from error
    except ApiUnavailable as error:
        remedy = "does the API server run, and is --kubeconfig of this cluster?"
        raise Refused("the API server does not answer", why=str(error), remedy=remedy) from error


def _on_cluster(given: dict[str, Any], work: Callable[[KubeApi], Awaitable[T]]) -> T:
    try:
        return on_api(given["kubeconfig"], given["context"], work)
    except NotInstalled as error:
        raise Refused(str(error), remedy=error.remedy) from error
    except TimeoutError as error:
        raise Refused("the definitions are not served yet", remedy="relume doctor says more") from error
    except ApiError as error:
        remedy = "relume doctor says which rights are missing" if error.status == 403 else ""
        raise Refused("the API server refused it", why=str(error), remedy=remedy) from error


def _wanted(given: dict[str, Any]) -> Wanted:
    if given["only_crds"] and given["without_crds"]:
        raise click.UsageError("--only-crds and --without-crds leave nothing to do; give one of them")
    if not given["image"] and not given["only_crds"]:
        raise click.UsageError("--image is missing: build one of the Dockerfile, push it, and name it")
    kafka = ""
    if given["events"]:
        try:
            url = parse_events_url(given["events"])
        except ValueError as error:
            raise click.UsageError(f"--events: {error}") from error
        if not isinstance(url, KafkaEvents):
            raise click.UsageError("--events is for Kafka; without it one process keeps its log on a volume")
        kafka = ",".join(url.servers)
    return Wanted(given["namespace"], given["image"] or "", kafka, given["prometheus"] or "", agents=given["agent"])


def _show(told: Sequence[Outcome], output: str) -> None:
    if output == "json":
        show_json({"items": [asdict(one) for one in told]})
        return
    show_table(("KIND", "NAME", "OUTCOME"), [(one.kind, one.name, one.outcome) for one in told])
    for one in told:
        if one.why:
            say(f"kept: {one.kind} {one.name}: {one.why}")
