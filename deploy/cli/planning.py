"""`relume plan`: would a model fit a running relume; how well does a cluster from files fill; generated clusters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.options import NumberRange, output, talking
from deploy.cli.output import say, show_json

if TYPE_CHECKING:
    from preemption.core.gpus.replay import Filled

PLACEMENTS: Final = ("relume", "fgd", "bestfit", "random")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command("plan", (
    "relume plan --nodes nodes.csv --pods pods.csv --placement relume -o json",
    "relume plan --nodes nodes.csv --pods pods.csv --placement fgd --seed 42   # shuffled, and until it is full",
    "relume plan --generate cluster/ --seed 7      # 1,213 nodes, 6,212 GPUs, 8,152 pods, as published",
    "relume plan --generate small/ --scale 0.05",
    "relume plan -f model.yaml                     # would it fit here, and where? (asks a running relume)",
))  # fmt: skip
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    metavar="FILE",
    help="Ask a running relume what would become of these models and training jobs: file, folder, or - .",
)
@click.option(
    "--replicas", type=click.IntRange(1, 500), help="With -f: so many replicas more of each model. [default: 1]"
)
@click.option("--nodes", type=_FILE, metavar="NODES.csv", help="Nodes: sn,cpu_milli,memory_mib,gpu,model.")
@click.option(
    "--pods", type=_FILE, metavar="PODS.csv", help="Pods: name,cpu_milli,memory_mib,num_gpu[,gpu_milli,gpu_spec,...]."
)
@click.option("--placement", type=click.Choice(PLACEMENTS), help="The policy that places them. [default: relume]")
@click.option("--seed", type=click.IntRange(0), help="Shuffle the pods, and draw more until the cluster is full.")
@click.option(
    "--arrivals",
    type=NumberRange(0.01, 10),
    metavar="FACTOR",
    help="With --seed: how much is asked for, in all GPUs of the cluster. [default: 1.3]",
)
@click.option(
    "--generate",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write nodes.csv and pods.csv of a cluster like the published one, and stop.",
)
@click.option("--scale", type=NumberRange(0.001, 100), help="With --generate: how large. [default: 1]")
@output("text", "json")
@talking
def plan(  # noqa: PLR0913 - one parameter an option
    connection: Connection, files: Sequence[str], replicas: int | None, nodes: Path | None, pods: Path | None, *,
    placement: str | None, seed: int | None, arrivals: float | None, folder: Path | None, scale: float | None,
    output: str,
) -> int:  # fmt: skip
    """Answer without doing: would a model or a training job fit, or how well would a cluster fill.

    With -f a running relume says of each model whether replicas of it fit, where, what that fragments, and who would
    have to yield; of each training job when and where it would be started. Each document sees what those before it
    would take. Nothing is declared. Exit code 1 when one does not fit.

    With --nodes and --pods a cluster from files is filled, and no relume is asked. Each pod goes where the policy puts
    it and stays; one that fits nowhere fails for good. Without --seed each pod is submitted once, in the order of the
    file. With --seed the pods are shuffled, and more are drawn among them until they ask for 1.3 times the GPUs of the
    cluster: by then it is full. (So do the published simulations.)

    \b
    allocatedGpuFraction  GPUs that placed pods hold at the end / all GPUs
    fragmentation         GPUs that are free at the end and of no use to the
                          typical pods (the F of FGD, ATC 2023) / all GPUs
    placed, failed        numbers of submitted pods
    seconds               how long the placing took
    arrivedGpuFraction    GPUs that all submitted pods ask for / all GPUs
    allocatedGpuFractionAtFullArrivals
                          GPUs held when arrivedGpuFraction passed 1, which
                          is what is published; null when it never did
    """
    cluster: dict[str, object] = {"--nodes": nodes, "--pods": pods, "--placement": placement, "--arrivals": arrivals}
    if files:
        _wrong_with("-f", {**cluster, "--seed": seed, "--generate": folder, "--scale": scale})
        from deploy.cli.prechecking import ask_plan  # noqa: PLC0415 - reading declarations takes pydantic

        return ask_plan(connection, files, replicas or 1, output)
    _wrong_with("--nodes, --pods and --generate", {"--replicas": replicas})
    if folder is not None:
        _wrong_with("--generate", cluster)
        _generate(folder, scale or 1.0, seed or 0, output)
        return 0
    _wrong_with("--nodes and --pods", {"--scale": scale})
    if nodes is None or pods is None:
        raise click.UsageError(
            "name models or training jobs with -f FILE, or a cluster with --nodes NODES.csv and --pods PODS.csv; "
            "make one with --generate DIR"
        )
    if arrivals is not None and seed is None:
        raise click.UsageError("--arrivals goes with --seed, which says which pods are drawn")
    _replay(_Wanted(nodes, pods, placement or PLACEMENTS[0], seed, arrivals), output)
    return 0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be replayed."""

    nodes: Path
    pods: Path
    placement: str
    seed: int | None
    arrivals: float | None


def _wrong_with(what: str, given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None:
            raise click.UsageError(f"{option} does not go with {what}; leave it out")


def _generate(folder: Path, scale: float, seed: int, output: str) -> None:
    from preemption.adapters.generated import Size, generate  # noqa: PLC0415 - numpy takes a fifth of a second

    try:
        written = generate(folder, Size(scale, seed))
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror}", remedy="name another folder") from error
    if output == "json":
        show_json({"nodes": str(written[0]), "pods": str(written[1])})
    else:
        say(f"wrote {written[0]} and {written[1]}")


def _replay(wanted: _Wanted, output: str) -> None:
    from preemption.adapters.openb import BadFile  # noqa: PLC0415 - as above

    try:
        filled, seconds = _fill(wanted)
    except BadFile as error:
        raise Refused(str(error)) from error
    except ValueError as error:
        raise Refused(str(error), remedy="ask for less with --arrivals") from error
    if output == "json":
        show_json(_as_json(filled, seconds))
    else:
        click.echo(_in_words(wanted, filled, seconds))


def _fill(wanted: _Wanted) -> tuple[Filled, float]:
    from events.clock import SystemClock  # noqa: PLC0415 - as above
    from preemption.adapters.openb import read_nodes, read_pods  # noqa: PLC0415 - as above
    from preemption.adapters.submitting import SATURATED, in_order, saturating  # noqa: PLC0415 - as above
    from preemption.core.gpus.choosing import Chooser, Policy  # noqa: PLC0415 - as above
    from preemption.core.gpus.mix import typical  # noqa: PLC0415 - as above
    from preemption.core.gpus.replay import fill  # noqa: PLC0415 - as above
    from preemption.core.gpus.space import Space  # noqa: PLC0415 - as above

    space, tasks, clock = Space(read_nodes(wanted.nodes)), read_pods(wanted.pods), SystemClock()
    if wanted.seed is None:
        submissions = in_order(tasks)
    else:
        submissions = saturating(tasks, space.gpu_total, wanted.seed, wanted.arrivals or SATURATED)
    chooser = Chooser(space, Policy(wanted.placement), typical(tasks))
    began = clock.now()
    filled = fill(chooser, submissions, _Progress(len(submissions)))
    return filled, clock.now() - began


class _Progress:
    """A line on standard error that counts, where a person looks at it."""

    def __init__(self, total: int) -> None:
        self._total, self._shown = total, sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        if self._shown:
            end = "\n" if done + 100 > self._total else ""
            click.echo(f"\r{done} of {self._total} pods{end}", err=True, nl=False)


def _as_json(filled: Filled, seconds: float) -> dict[str, Any]:
    full = filled.at_full_arrivals
    return {
        "allocatedGpuFraction": round(filled.allocated, 6), "fragmentation": round(filled.fragmentation, 6),
        "placed": filled.placed, "failed": filled.failed, "seconds": round(seconds, 3),
        "arrivedGpuFraction": round(filled.arrived, 6),
        "allocatedGpuFractionAtFullArrivals": None if full is None else round(full, 6),
    }  # fmt: skip


def _in_words(wanted: _Wanted, filled: Filled, seconds: float) -> str:
    held, lost = 100 * filled.allocated, 100 * filled.fragmentation
    return "\n".join((
        f"{wanted.placement}: {held:.2f} % of the GPUs are allocated; {lost:.2f} % are free, of no use to typical pods",
        f"{filled.placed} pods placed, {filled.failed} failed; they asked for {100 * filled.arrived:.1f} % of the GPUs",
        f"in {seconds:.1f} s",
    ))  # fmt: skip
