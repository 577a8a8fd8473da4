"""From one declaration of a pool to the next: which uid, revision and generation. Pure.

A name keeps its uid until it is deleted; declared again after that, it has the next revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from deploy.spec.check import check_as
from deploy.spec.kinds import Document
from deploy.spec.pool import GpuPool
from events.types.pools import PoolDeclared


def declare_pool(
    previous: PoolDeclared | None, document: Document | Mapping[str, object], new_uid: str
) -> PoolDeclared:
    """The declaration that `document` makes of `previous` (the newest one of this name, deleted ones too).

    Returns `previous` itself when nothing changes. Raises SpecRefused when the document is wrong.
    """
    pool = document if isinstance(document, GpuPool) else check_as(GpuPool, document)
    spec, metadata = written_pool(pool), pool.metadata
    labels, annotations = dict(metadata.labels), dict(metadata.annotations)
    if previous is None or previous.deleted:
        revision = 1 if previous is None else previous.revision + 1
        return PoolDeclared(
            pool=metadata.name, uid=new_uid, revision=revision, generation=1, spec=spec, labels=labels,
            annotations=annotations,
        )  # fmt: skip
    if previous.pool != metadata.name:
        raise ValueError(f"{metadata.name} cannot follow {previous.pool}; give the newest declaration of this name")
    revision = previous.revision + (previous.spec != spec)
    return _next(previous, replace(previous, spec=spec, labels=labels, annotations=annotations, revision=revision))


def delete_pool(previous: PoolDeclared) -> PoolDeclared:
    """The defaults hold again."""
    return _next(previous, replace(previous, deleted=True))


def written_pool(pool: GpuPool) -> dict[str, JsonValue]:
    """The spec as YAML would say it, defaults filled in."""
    return pool.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _next(previous: PoolDeclared, declared: PoolDeclared) -> PoolDeclared:
    """`declared` as the next generation; `previous` itself when they say the same."""
    return previous if declared == previous else replace(declared, generation=previous.generation + 1)
