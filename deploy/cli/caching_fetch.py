"""`relume cache fetch`: have weights on this node, by this process or by the relume that writes to the folder."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deploy.cli.caching import on_folder, opened, root_of, telling, with_capacity, with_quotas
from deploy.cli.commands import command
from deploy.cli.options import output
from deploy.cli.output import say, seconds, show_json

if TYPE_CHECKING:
    from coldstart.cache.layout import Layout
    from coldstart.cache.wanting import Got, Progress
    from coldstart.cache.weights import WeightCache, Writing
    from coldstart.core.cache.errors import FolderTaken
    from coldstart.core.cache.policy import Quota
    from coldstart.core.cache.wanted import Wanted


LOOK_EVERY: Final = 0.25
"""Seconds between two looks whether the folder is free."""


def _digest(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from coldstart.core.cache.content import check_digest  # noqa: PLC0415 - commands import what they use

    try:
        return None if text is None else check_digest(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    from events.units import parse_duration  # noqa: PLC0415 - as above

    try:
        wanted = None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if wanted is not None and wanted <= 0:
        raise click.BadParameter("0 leaves no time; write a duration above zero, such as 10m")
    return wanted


@command("fetch", (
    "relume cache fetch https://models.example/llama.gguf --digest sha256:9f86… -o json",
    "relume cache fetch file:///mnt/share/llama.gguf --capacity 500Gi",
    "relume cache fetch https://models.example/private.gguf --header-env Authorization=MODELS_AUTH",
    "relume cache fetch hf://org/name@main --include '*.safetensors' --include '*.json' --credentials env:HF_READ",
    "relume cache fetch s3://models/llama/ --endpoint http://store:9000 --region us-east-1",
))  # fmt: skip
@click.argument("uri")
@click.option("--digest", metavar="sha256:HEX", callback=_digest, help="What the content must be.")
@click.option("--header-env", "header_env", metavar="NAME=VARIABLE", multiple=True,
              help="Send a header whose value is in this environment variable.")  # fmt: skip
@click.option("--include", multiple=True, metavar="PATTERN", help="Of several files, those; * crosses /, case counts.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Of several files, not those.")
@click.option("--credentials", metavar="REFERENCE",
              help="Where the secret is: env:NAME, file:/path; none: a public bucket.")  # fmt: skip
@click.option("--endpoint", metavar="URL", help="Where the store or hub is, if not where it usually is.")
@click.option("--region", help="Of an S3 bucket.")
@click.option("--timeout", metavar="DURATION", callback=_duration, help="Give up after so long. [default: 4h]")
@on_folder
@with_capacity
@with_quotas
@output("text", "json")
def fetch(  # noqa: PLR0913 - one parameter an option
    uri: str, digest: str | None, header_env: Sequence[str], *, include: Sequence[str], exclude: Sequence[str],
    credentials: str | None, endpoint: str | None, region: str | None, timeout: float | None,
    data_dir: Path | None, capacity: int | None, quotas: tuple[Quota, ...], output: str,
) -> int:  # fmt: skip
    """Have weights on this node, and print where they are.

    URI is a file or a folder by file:///path, a file by http:// or https://, an object or a prefix by s3://, gs:// or
    az:// (relume[stores]), a model by hf://ORG/NAME[@REVISION][/PATH] (relume[hf]), an artifact by
    oci://REGISTRY/NAME[:TAG][@sha256:DIGEST]. The first part of a split GGUF file names all, a safetensors index its
    shards.

    While another such command writes to the folder, this one waits for it to end; a relume that does is asked to fetch.

    What was fetched and verified before is not fetched again, also after a kill. With --digest the source is not asked
    at all on a hit; without it, it is asked whether it has a newer version, and a source that does not answer does not
    break the hit. Only verified content ever gets a path.

    \b
    path      the read-only file, or the folder of several
    bytes     its length, of all together
    digest    sha256 of its content; of a folder, of what sha256sum prints for its files in order
    seconds   that this took
    hit       whether it was there
    source    the address, without secrets
    """
    from coldstart.core.cache.errors import FolderTaken  # noqa: PLC0415 - as above
    from coldstart.core.cache.wanted import Access, Wanted  # noqa: PLC0415 - as above

    access = Access(credentials, _headers(header_env), endpoint, region)
    wanted = Wanted(uri, digest, tuple(include), tuple(exclude), access)
    with telling():
        try:
            cache = opened(data_dir, capacity, timeout, quotas, _in_turn(root_of(data_dir), timeout))
            got, settle = _fetched(wanted, cache), opened(data_dir).settle
        except FolderTaken as taken:
            if wanted != Wanted(uri, digest):
                raise  # a secret of this process is none of the relume's, nor is how it speaks with stores
            return _fetched_by(taken, root_of(data_dir), {"uri": uri, "digest": digest}, output)
    if got.note:
        say(got.note)
    manifest = got.manifest
    if output == "json":
        show_json({
            "path": str(got.path), "bytes": manifest.bytes, "digest": manifest.digest,
            "seconds": round(got.seconds, 6), "hit": got.hit, "source": manifest.source,
        })  # fmt: skip
    else:
        click.echo(str(got.path))
        say(f"{'was there' if got.hit else 'fetched'} in {seconds(got.seconds)}: {manifest.digest}")
    with telling():
        settle(wanted)
        got.use.end()
    return 0


def _headers(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names, and references to values."""
    headers = []
    for pair in pairs:
        name, _, variable = pair.partition("=")
        if not name or not variable:
            raise click.UsageError(f"--header-env {pair!r}: write NAME=VARIABLE")
        if variable not in os.environ:
            raise click.UsageError(f"--header-env {name}: the environment has no {variable}")
        headers.append((name, f"env:{variable}"))
    return tuple(headers)


def _in_turn(data_dir: Path, timeout: float | None) -> Writing:
    """Become the folder's writer when another command has ended that is; FolderTaken where a relume is, which is asked
    instead and does not end."""
    from coldstart.cache import holding  # noqa: PLC0415 - as above
    from coldstart.core.cache.errors import FolderTaken  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import FetchPolicy  # noqa: PLC0415 - as above
    from deploy.cli.running_agent import is_agent  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above

    @contextlib.contextmanager
    def writing(layout: Layout) -> Iterator[None]:
        clock, told = SystemClock(), False
        until = clock.now() + (FetchPolicy().patience if timeout is None else timeout)
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(holding.writing(layout))
                    break
                except FolderTaken as taken:
                    if is_agent(taken, data_dir) or clock.now() > until:
                        raise
                    if not told:
                        say(f"{taken}: waiting for it to end")
                    told = True
                threading.Event().wait(LOOK_EVERY)
            yield

    return writing


def _fetched(wanted: Wanted, weights: WeightCache) -> Got:
    from coldstart.adapters.sources import source_for  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import FetchPolicy  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above

    source = source_for(wanted, FetchPolicy(), SystemClock())
    with _shown() as progress:
        return weights.fetch(wanted, source, progress)


@contextlib.contextmanager
def _shown() -> Iterator[Progress]:
    """A progress bar, where a person looks."""
    from coldstart.cache.wanting import Progress  # noqa: PLC0415 - as above

    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console  # noqa: PLC0415 - a tenth of a second
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn  # noqa: PLC0415 - as above
    from rich.progress import Progress as Bars  # noqa: PLC0415 - as above

    with Bars(
        BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=Console(stderr=True), transient=True
    ) as bars:
        task = bars.add_task("weights", total=None)

        class Bar(Progress):
            def begins(self, total: int) -> None:
                bars.reset(task, total=total)

            def verified(self, more: int) -> None:
                bars.advance(task, more)

        yield Bar()


def _fetched_by(taken: FolderTaken, data_dir: Path, wanted: dict[str, object], output: str) -> int:
    """Have the relume fetch that writes to the folder, and print what it says."""
    from deploy.cli.running_agent import agent_of, fetch, steps  # noqa: PLC0415 - as above

    with _shown() as progress:
        told = fetch(agent_of(taken, data_dir), wanted, steps(progress))
    if output == "json":
        show_json({name: told[name] for name in ("path", "bytes", "digest", "seconds", "hit", "source")})
    else:
        click.echo(told["path"])
        say(f"{'was there' if told['hit'] else 'fetched'} in {seconds(told['seconds'])}: {told['digest']}")
    return 0
