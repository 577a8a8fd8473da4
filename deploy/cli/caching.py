"""`relume cache`: weights on this node: fetched, verified, listed, pinned, evicted."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import say, seconds, show_json, show_table

if TYPE_CHECKING:
    from coldstart.cache.inventory import Cached
    from coldstart.cache.layout import Layout
    from coldstart.cache.wanting import Got, Progress
    from coldstart.cache.weights import WeightCache
    from coldstart.core.cache.errors import FolderTaken
    from coldstart.core.cache.policy import Quota
    from coldstart.core.cache.wanted import Wanted

FOLDER: Final = "weights"
"""In the data folder."""


@click.group("cache", cls=LazyGroup, lazy={
    "fetch": Lazy("deploy.cli.caching:fetch", "Have weights on this node, and print where they are."),
    "ls": Lazy("deploy.cli.caching:list_cached", "List the weights that are here."),
    "du": Lazy("deploy.cli.caching:usage", "Say how much the cache takes, and how much it may hold."),
    "verify": Lazy("deploy.cli.caching:verify", "Read weights anew, and put aside what is wrong."),
    "evict": Lazy("deploy.cli.caching:evict", "Take weights out of the cache."),
    "pin": Lazy("deploy.cli.caching:pin", "Keep weights, whatever else needs room."),
    "nodes": Lazy("deploy.cli.weights:nodes", "List the weights of the nodes of a running relume."),
    "gc": Lazy("deploy.cli.caching:collect", "Clear leftovers, and go below the low watermark."),
}, examples=("relume cache fetch https://models.example/llama.gguf -o json", "relume cache ls"))  # fmt: skip
def cache() -> None:
    """Keep weights on this node: content-addressed, verified, resumable.

    The folder is weights/ in the data folder. One process writes to it at a time; a hit needs no writer. While a relume
    runs on the folder, it is asked to fetch, pin and evict.
    """


def _folder(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--data-dir", type=click.Path(file_okay=False, path_type=Path), envvar="RELUME_DATA_DIR", show_envvar=True,
        help="The data folder. [default: as relume up]",
    )(function)  # fmt: skip


def _capacity(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--capacity", metavar="BYTES", callback=_quantity, envvar="RELUME_CACHE_CAPACITY", show_envvar=True,
        help="The most that the cache holds, such as 500Gi. [default: the disk, less 5 %]",
    )(function)  # fmt: skip


def _quotas(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--quotas", type=click.Path(path_type=Path), callback=_read_quotas, metavar="FILE",
        envvar="RELUME_CACHE_QUOTAS", show_envvar=True, help="Quotas by name: match, bytes, files. [default: none]",
    )(function)  # fmt: skip


def _read_quotas(_: click.Context, __: click.Parameter, path: Path | None) -> tuple[Quota, ...]:
    if path is None:
        return ()
    from deploy.settings.cache_quotas import read_quotas  # noqa: PLC0415 - commands import what they use

    try:
        return read_quotas(path)
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}") from error


def _quantity(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    from events.units import parse_quantity  # noqa: PLC0415 - commands import what they use

    try:
        return None if text is None else parse_quantity(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _digest(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from coldstart.core.cache.content import check_digest  # noqa: PLC0415 - as above

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


def _opened(
    data_dir: Path | None, capacity: int | None = None, timeout: float | None = None, quotas: tuple[Quota, ...] = ()
) -> WeightCache:  # fmt: skip
    from coldstart.cache.weights import WeightCache  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import FetchPolicy, RoomPolicy  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above
    from events.units import Bytes, Seconds  # noqa: PLC0415 - as above

    policy = FetchPolicy() if timeout is None else FetchPolicy(patience=Seconds(timeout))
    room = RoomPolicy(capacity=None if capacity is None else Bytes(capacity), quotas=quotas)
    return WeightCache(_root(data_dir) / FOLDER, policy, room, SystemClock())


def _root(data_dir: Path | None) -> Path:
    if data_dir is not None:
        return data_dir
    from deploy.settings.settings import default_data_dir  # noqa: PLC0415 - as above

    return default_data_dir()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What cannot be done, in words and with its remedy."""
    from coldstart.core.cache.errors import CacheError, UnsupportedSource  # noqa: PLC0415 - as above

    try:
        yield
    except UnsupportedSource as error:
        raise click.UsageError(f"{error}; {error.remedy}") from error
    except CacheError as error:
        raise Refused(str(error), remedy=error.remedy, name=type(error).__name__) from error
    except OSError as error:
        raise Refused(f"{error.filename or 'the cache'}: {error.strerror}") from error


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
@_folder
@_capacity
@_quotas
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
    with _told():
        try:
            got, settle = _fetched(wanted, _opened(data_dir, capacity, timeout, quotas))
        except FolderTaken as taken:
            if wanted != Wanted(uri, digest):
                raise  # a secret of this process is none of the relume's, nor is how it speaks with stores
            return _fetched_by(taken, _root(data_dir), {"uri": uri, "digest": digest}, output)
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
    with _told():
        settle()
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


def _fetched(wanted: Wanted, weights: WeightCache) -> tuple[Got, Callable[[], None]]:
    from coldstart.adapters.sources import source_for  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import FetchPolicy  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above

    source = source_for(wanted, FetchPolicy(), SystemClock())
    with _shown() as progress:
        got = weights.fetch(wanted, source, progress)
    return got, lambda: weights.settle(wanted)


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


@command("ls", ("relume cache ls", "relume cache ls -o json | jq '.items[].source'"))
@_folder
@output("table", "json")
def list_cached(data_dir: Path | None, output: str) -> None:
    """List the weights that are here."""
    from coldstart.cache.inventory import cached  # noqa: PLC0415 - as above

    with _told():
        items = [item for one in cached(_there(data_dir)) for item in _items(one)]
    if output == "json":
        show_json({"items": items})
        return
    from events.units import format_quantity  # noqa: PLC0415 - as above

    rows = [
        [item["source"], format_quantity(item["bytes"]), item["digest"][:19], "yes" if item["pinned"] else "",
         "yes" if item["inUse"] else ""]
        for item in items
    ]  # fmt: skip
    show_table(["SOURCE", "SIZE", "DIGEST", "PINNED", "IN USE"], rows)


def _there(data_dir: Path | None) -> Layout:
    layout = _opened(data_dir).layout
    layout.make()
    return layout


def _items(one: Cached) -> list[dict[str, Any]]:
    from events.units import format_instant  # noqa: PLC0415 - as above

    return [
        {
            "source": manifest.source, "name": manifest.main or Path(manifest.source).name,
            "files": len(manifest.files), "bytes": one.bytes, "digest": one.digest, "whole": one.whole,
            "fetchedAt": format_instant(manifest.fetched_at), "fetchSeconds": round(manifest.fetch_seconds, 3),
            "pinned": one.pinned, "inUse": one.in_use,
        }
        for manifest in one.manifests
    ]  # fmt: skip


@command("du", ("relume cache du -o json",))
@_folder
@_capacity
@_quotas
@output("text", "json")
def usage(data_dir: Path | None, capacity: int | None, quotas: tuple[Quota, ...], output: str) -> None:
    """Say how much the cache takes, and how much it may hold; with --quotas, of each as well."""
    from coldstart.cache.inventory import cached, entries, space  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import RoomPolicy  # noqa: PLC0415 - as above
    from coldstart.core.cache.quotas import use_of  # noqa: PLC0415 - as above
    from events.units import Bytes, format_quantity  # noqa: PLC0415 - as above

    with _told():
        layout = _there(data_dir)
        told = space(layout, RoomPolicy(capacity=None if capacity is None else Bytes(capacity)))
        there = entries(layout, cached(layout)) if quotas else ()
    uses = [(quota, use_of(quota, there)) for quota in quotas]
    if output == "json":
        shown = [
            {"name": quota.name, "match": quota.match, "usedBytes": use.bytes, "usedFiles": use.files,
             "bytes": quota.bytes, "files": quota.files}
            for quota, use in uses
        ]  # fmt: skip
        show_json({"usedBytes": told.used, "capacityBytes": told.capacity, "quotas": shown})
        return
    click.echo(f"{format_quantity(told.used)} of {format_quantity(told.capacity)}")
    for quota, use in uses:
        size = "" if quota.bytes is None else f" of {format_quantity(quota.bytes)}"
        files = "" if quota.files is None else f" of {quota.files}"
        click.echo(f"{quota.name}: {format_quantity(use.bytes)}{size}, {use.files}{files} files ({quota.match})")


@command("verify", ("relume cache verify", "relume cache verify https://models.example/llama.gguf -o json"))
@click.argument("names", nargs=-1, metavar="[URI|DIGEST]...")
@_folder
@output("text", "json")
def verify(names: Sequence[str], data_dir: Path | None, output: str) -> int:
    """Read weights anew, and put aside what is not what it should be.

    Exit code 1: something was wrong. It lies in quarantine/, and the next fetch has it anew; others are not touched.
    A relume that runs on the folder is asked to put it there.
    """
    from coldstart.cache import inventory, tending  # noqa: PLC0415 - as above

    layout = _there(data_dir)
    with _told():
        there = [inventory.named(layout, name) for name in names] if names else inventory.cached(layout)
        wrong = tending.wrong(layout, there)  # reading needs no writer, only putting aside does
    for digest in wrong:
        _put_aside(data_dir, digest)
    right = sum(not set(one.blobs) & set(wrong) for one in there)
    if output == "json":
        show_json({"verified": right, "quarantined": list(wrong)})
    for digest in wrong:
        say(f"{digest} was not what it should be; it is in {layout.quarantine}")
    if output != "json":
        say(f"{right} of {len(there)} are right")
    return 1 if wrong else 0


def _put_aside(data_dir: Path | None, digest: str) -> None:
    """What was found wrong, after one more look."""
    from coldstart.cache import scrubbing  # noqa: PLC0415 - as above

    def work(layout: Layout) -> dict[str, Any]:
        return {"right": not scrubbing.put_aside(layout, digest, threading.RLock())}

    _written(data_dir, work, "verify", digest=digest)


@command("evict", ("relume cache evict https://models.example/llama.gguf", "relume cache evict 9f86d081884c7d65"))
@click.argument("name", metavar="URI|DIGEST")
@_folder
@output("text", "json")
def evict(name: str, data_dir: Path | None, output: str) -> None:
    """Take weights out of the cache. Refused while they are in use or pinned."""
    from coldstart.cache import inventory  # noqa: PLC0415 - as above

    def work(layout: Layout) -> dict[str, Any]:
        one = inventory.named(layout, name)
        inventory.evict(layout, one)
        layout.empty_trash()
        return {"digest": one.digest}

    digest = _written(data_dir, work, "evict", name=name)["digest"]
    if output == "json":
        show_json({"digest": digest})
    else:
        say(f"evicted {digest}")


@command("pin", ("relume cache pin https://models.example/llama.gguf", "relume cache pin --off 9f86d081884c7d65"))
@click.argument("name", metavar="URI|DIGEST")
@click.option("--off", is_flag=True, help="Pin no longer.")
@_folder
@output("text", "json")
def pin(name: str, off: bool, data_dir: Path | None, output: str) -> None:
    """Keep weights, whatever else needs room."""
    from coldstart.cache import holding, inventory  # noqa: PLC0415 - as above

    def work(layout: Layout) -> dict[str, Any]:
        one = inventory.named(layout, name)
        for snapshot in one.snapshots:
            holding.pin(layout, snapshot, not off)
        return {"digest": one.digest}

    digest = _written(data_dir, work, "pin", name=name, pinned=not off)["digest"]
    if output == "json":
        show_json({"digest": digest, "pinned": not off})
    else:
        say(f"{digest} is {'not pinned any more' if off else 'pinned'}")


def _written(
    data_dir: Path | None, work: Callable[[Layout], dict[str, Any]], operation: str, **asked: object
) -> dict[str, Any]:
    """Do it as the folder's writer, or have the relume do it that is the writer; what it says."""
    from coldstart.cache import holding  # noqa: PLC0415 - as above
    from coldstart.core.cache.errors import FolderTaken  # noqa: PLC0415 - as above

    layout = _there(data_dir)
    with _told():
        try:
            with holding.writing(layout):
                return work(layout)
        except FolderTaken as taken:
            from deploy.cli.running_agent import agent_of, ask  # noqa: PLC0415 - as above

            return ask(agent_of(taken, _root(data_dir)), operation, **asked)


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


@command("gc", ("relume cache gc", "relume cache gc --capacity 200Gi -o json"))
@_folder
@_capacity
@output("text", "json")
def collect(data_dir: Path | None, capacity: int | None, output: str) -> None:
    """Clear what crashes and old fetches left, and go below the low watermark.

    Above 85 % of the capacity, the weights whose absence costs least are evicted, down to 75 %. A relume that runs on
    the folder is asked to do it; then its capacity counts.
    """
    from coldstart.cache import tending  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import RoomPolicy  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above
    from events.units import Bytes, format_quantity  # noqa: PLC0415 - as above

    def work(layout: Layout) -> dict[str, Any]:
        room = RoomPolicy(capacity=None if capacity is None else Bytes(capacity))
        return dataclasses.asdict(tending.collect(layout, room, SystemClock().now()))

    cleared = _written(data_dir, work, "collect")
    if output == "json":
        show_json(cleared)
    else:
        say(f"freed {format_quantity(cleared['bytes'])}: {len(cleared['evicted'])} evicted, {cleared['partials']} "
            f"old fetches, {cleared['orphans']} leftovers")  # fmt: skip
