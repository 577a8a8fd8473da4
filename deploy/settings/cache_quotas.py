"""Quotas of the weight cache, by name: a file.

```yaml
acme:
  match: "hf://acme/*"     # of the address; * crosses /, case counts
  bytes: 200Gi
  files: 5000              # inodes
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, TypeAdapter, model_validator

from coldstart.core.cache.policy import Quota
from deploy.settings.named import read_named
from events.names import DNS_LABEL_PATTERN
from events.spec import Quantity, Spec
from events.units import Bytes

QUOTAS_MOST = 256

Name = Annotated[str, StringConstraints(pattern=DNS_LABEL_PATTERN)]


class CacheQuota(Spec):
    """How much of the cache the weights of some addresses may take."""

    match: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    bytes: Annotated[Quantity, Field(gt=0)] | None = None
    files: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.bytes is None and self.files is None:
            raise ValueError("it bounds nothing; give bytes, files, or both")
        return self


_QUOTAS: TypeAdapter[dict[str, CacheQuota]] = TypeAdapter(
    Annotated[dict[Name, CacheQuota], Field(max_length=QUOTAS_MOST)]
)


def read_quotas(path: Path | None) -> tuple[Quota, ...]:
    """The quotas of a file; none without one. ValueError says in a sentence what is wrong."""
    told = {} if path is None else read_named(path, _QUOTAS)
    return tuple(
        Quota(name, one.match, None if one.bytes is None else Bytes(one.bytes), one.files) for name, one in told.items()
    )
