"""Files that belong to the one that is named: parts of a split GGUF file, shards of a safetensors index."""

from __future__ import annotations

from collections.abc import Callable

from coldstart.core.cache.content import Described
from coldstart.core.cache.selection import INDEX, check_names, shards_of, split_parts


def companions(named: Described, read: Callable[[], bytes], source: str) -> tuple[str, ...]:
    """Their names, beside the one that is named and with it; only that one where there are no others.

    `read` gives the content of the file that is named. OddName: an index that names what is not beside it.
    """
    if not named.name.endswith(INDEX):
        return split_parts(named.name)
    names = (named.name, *(name for name in shards_of(read()) if name != named.name))
    check_names(names, source)
    return names
