"""`relume cache`: weights on this node: listed, verified, pinned, evicted; how they come is in `caching_fetch`."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import say, show_json, show_table

if TYPE_CHECKING:
    from coldstart.cache.inventory import Cached
    from coldstart.cache.layout import Layout
    from coldstart.cache.weights import WeightCache, Writing
    from coldstart.core.cache.policy import Quota

FOLDER: Final = "weights"
"""In the data folder."""


@click.group("cache", cls=LazyGroup, lazy={
    "fetch": Lazy("deploy.cli.caching_fetch:fetch", "Have weights on this node, and print where they are."),
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


def on_folder(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option that says which folder."""
    return click.option(
        "--data-dir", type=click.Path(file_okay=False, path_type=Path), envvar="RELUME_DATA_DIR", show_envvar=True,
        help="The data folder. [default: as relume up]",
    )(function)  # fmt: skip


def with_capacity(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option of what it may hold."""
    return click.option(
        "--capacity", metavar="BYTES", callback=_quantity, envvar="RELUME_CACHE_CAPACITY", show_envvar=True,
        help="The most that the cache holds, such as 500Gi. [default: the disk, less 5 %]",
    )(function)  # fmt: skip


def with_quotas(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option of what parts of it may hold."""
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


def opened(
    data_dir: Path | None, capacity: int | None = None, timeout: float | None = None, quotas: tuple[Quota, ...] = (),
    writing: Writing | None = None,
) -> WeightCache:  # fmt: skip
    """The cache in a data folder, for as long as `timeout` seconds a fetch. `writing`: how it becomes its writer."""
    from coldstart.cache import holding  # noqa: PLC0415 - as above
    from coldstart.cache.weights import WeightCache  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import FetchPolicy, RoomPolicy  # noqa: PLC0415 - as above
    from events.clock import SystemClock  # noqa: PLC0415 - as above
    from events.units import Bytes, Seconds  # noqa: PLC0415 - as above

    policy = FetchPolicy() if timeout is None else FetchPolicy(patience=Seconds(timeout))
    room = RoomPolicy(capacity=None if capacity is None else Bytes(capacity), quotas=quotas)
    return WeightCache(root_of(data_dir) / FOLDER, policy, room, SystemClock(), writing or holding.writing)


def root_of(data_dir: Path | None) -> Path:
    """The data folder; None: the usual one."""
    if data_dir is not None:
        return data_dir
    from deploy.settings.settings import default_data_dir  # noqa: PLC0415 - as above

    return default_data_dir()


@contextlib.contextmanager
def telling() -> Iterator[None]:
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


@command("ls", ("relume cache ls", "relume cache ls -o json | jq '.items[].source'"))
@on_folder
@output("table", "json")
def list_cached(data_dir: Path | None, output: str) -> None:
    """List the weights that are here."""
    from coldstart.cache.inventory import cached  # noqa: PLC0415 - as above

    with telling():
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
    layout = opened(data_dir).layout
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
@on_folder
@with_capacity
@with_quotas
@output("text", "json")
def usage(data_dir: Path | None, capacity: int | None, quotas: tuple[Quota, ...], output: str) -> None:
    """Say how much the cache takes, and how much it may hold; with --quotas, of each as well."""
    from coldstart.cache.inventory import cached, entries, space  # noqa: PLC0415 - as above
    from coldstart.core.cache.policy import RoomPolicy  # noqa: PLC0415 - as above
    from coldstart.core.cache.quotas import use_of  # noqa: PLC0415 - as above
    from events.units import Bytes, format_quantity  # noqa: PLC0415 - as above

    with telling():
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
@on_folder
@output("text", "json")
def verify(names: Sequence[str], data_dir: Path | None, output: str) -> int:
    """Read weights anew, and put aside what is not what it should be.

    Exit code 1: something was wrong. It lies in quarantine/, and the next fetch has it anew; others are not touched.
    A relume that runs on the folder is asked to put it there.
    """
    from coldstart.cache import inventory, tending  # noqa: PLC0415 - as above

    layout = _there(data_dir)
    with telling():
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
@on_folder
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
@on_folder
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
    with telling():
        try:
            with holding.writing(layout):
                return work(layout)
        except FolderTaken as taken:
            from deploy.cli.running_agent import agent_of, ask  # noqa: PLC0415 - as above

            return ask(agent_of(taken, root_of(data_dir)), operation, **asked)


@command("gc", ("relume cache gc", "relume cache gc --capacity 200Gi -o json"))
@on_folder
@with_capacity
@output("text", "json")
def collect(data_dir: Path | None, capacity: int | None, output: str) -> None:
    """Clear what crashes and old fetches left, and go below the low watermark.

    Above 85 % of the capacity, fetches that were given up and what was quarantined go first, then the weights whose
    absence costs least are evicted, down to 75 %. A relume that runs on the folder is asked to do it; then its capacity
    counts.
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
