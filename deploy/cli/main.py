"""`relume`: the command line. Exit codes: 0 done, 1 the answer is no, 2 wrong use, 130 stopped by Ctrl-C.

JSON goes to standard output alone; words for people go to standard error. Commands are imported when they are used, so
that ``--help`` and ``--version`` are quick.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from deploy.cli.commands import Lazy, LazyGroup
from deploy.cli.failing import Refused

DONE: Final = 0
NO: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT

COMMANDS: Final = {
    "up": Lazy("deploy.cli.up:up", "Run relume: gateway, autoscaler, local cluster, admin port."),
    "gateway": Lazy("deploy.cli.parts:gateway", "Run a gateway as a process of its own, on Kafka."),
    "autoscaler": Lazy("deploy.cli.parts:autoscaler", "Run an autoscaler as a process of its own, on Kafka."),
    "cluster": Lazy("deploy.cli.parts:cluster", "Run allocator and local cluster as a process, on Kafka."),
    "agent": Lazy("deploy.cli.parts:agent", "Run the agent of a node's weights as a process, on Kafka."),
    "apply": Lazy("deploy.cli.applying:apply", "Declare models, training jobs and pools from files."),
    "get": Lazy("deploy.cli.getting:get", "List models, replicas, decisions, training jobs, reclaims, pools."),
    "describe": Lazy("deploy.cli.describing:describe", "Tell the whole story of one model."),
    "delete": Lazy("deploy.cli.applying:delete", "Declare a model, a training job or a pool no longer."),
    "explain": Lazy("deploy.cli.asking:explain", "Say why a model has the replicas that it has."),
    "scale": Lazy("deploy.cli.asking:scale", "Set a model's replicas by hand for a while."),
    "events": Lazy("deploy.cli.events:events", "Follow and count the events of the log."),
    "submit": Lazy("deploy.cli.submitting:submit", "Have a file of requests answered when there is room."),
    "topics": Lazy("deploy.cli.topics:topics", "Check and create the topics of a log on Kafka."),
    "logs": Lazy("deploy.cli.logs:logs", "Show what replicas write."),
    "top": Lazy("deploy.cli.top:top", "Watch the load of models and nodes."),
    "train": Lazy("deploy.cli.training:train", "Run training jobs that lend their GPUs to models."),
    "reclaims": Lazy("deploy.cli.reclaims:reclaims", "See which GPUs training gave to models, and what it cost."),
    "plan": Lazy("deploy.cli.planning:plan", "Say whether models and jobs would fit; fill a cluster from files."),
    "simulate": Lazy("deploy.cli.simulating:simulate", "Replay a trace under policies; compare their cost."),
    "tune": Lazy("deploy.cli.tuning:tune", "Search a model's settings for the fewest GPU-seconds that keep a goal."),
    "cache": Lazy("deploy.cli.caching:cache", "Keep weights on this node: fetch, list, verify, evict."),
    "prewarm": Lazy("deploy.cli.weights:prewarm", "Have a model's weights on the node ahead of demand."),
    "coldstart": Lazy("deploy.cli.weights:coldstart", "Say which cold starts kept their promise."),
    "gpus": Lazy("deploy.cli.gpus:gpus", "Show the GPUs: holders, what is free, fragmentation; keep cards out."),
    "validate": Lazy("deploy.cli.checking:validate", "Check files without applying them."),
    "schema": Lazy("deploy.cli.checking:schema", "Print the JSON Schema of a declaration."),
    "dead-letters": Lazy("deploy.cli.dead_letters:dead_letters", "List and replay what could not be read or answered."),
    "bench": Lazy("deploy.cli.delegating:bench", "Measure relume against its yardsticks."),
    "demo": Lazy("deploy.cli.delegating:demo", "Show the main job with a small real model."),
    "install": Lazy("deploy.cli.installing:install", "Install relume on Kubernetes, or bring it up to date."),
    "uninstall": Lazy("deploy.cli.installing:uninstall", "Take relume off Kubernetes; models and data stay."),
    "doctor": Lazy("deploy.cli.doctoring:doctor", "Say what is wrong with relume on Kubernetes."),
    "completion": Lazy("deploy.cli.completing:completion", "Print a shell's completion script."),
    "version": Lazy("deploy.cli.asking:version", "Print the version, and that of a running relume."),
}
"""Every command, in the order of the help."""

EXAMPLES: Final = (
    "relume up -f model.yaml            # run; Ctrl-C or SIGTERM drains and ends",
    "relume get models                  # what is declared, and what it is doing",
    "relume explain llama               # why it has the replicas that it has",
    "relume events tail -o json         # one CloudEvent a line",
)


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from deploy.cli.versions import installed_version  # noqa: PLC0415 - 30 ms that only this needs

    click.echo(f"relume {installed_version()}")
    ctx.exit()


@click.group(
    name="relume", cls=LazyGroup, lazy=COMMANDS, examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)  # fmt: skip
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version,
              help="Print the version and exit.")  # fmt: skip
def cli() -> None:
    """Models that cost nothing until somebody asks: serve, scale and watch them."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    try:
        code = cli.main(args=list(arguments) if arguments is not None else None, prog_name="relume",
                        standalone_mode=False)  # fmt: skip
        sys.stdout.flush()
    except Refused as refused:
        click.echo(refused.text(), err=True)
        return NO
    except click.UsageError as error:
        error.show()
        return WRONG_USE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        gone = isinstance(error, BrokenPipeError)
        if not (gone or _is_of_stdout(error)):
            raise
        _silence_stdout()
        if not gone:
            click.echo(f"error: standard output cannot be written: {error.strerror}", err=True)
        return NO
    return code if isinstance(code, int) else DONE


def _is_of_stdout(error: OSError) -> bool:
    """Whether it comes from writing the answer: a full disk, for instance."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_code in (click.echo.__code__, run.__code__)


def _silence_stdout() -> None:
    """The reader of our output has gone (``| head``), or its disk is full: what is still to be flushed goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _open_streams() -> None:
    """A standard stream that is closed (``>&-``) would be the next file that is opened, and what children print would
    go into it: into the event log, for instance."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
            os.set_inheritable(number, True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")


def main() -> None:
    """The entry point."""
    _open_streams()
    sys.exit(run())


if __name__ == "__main__":
    main()
