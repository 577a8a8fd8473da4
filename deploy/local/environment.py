"""What the children may know: an allow-list of our environment, the marks of their replica, and the engine's own.

Nothing else of relume's environment reaches an engine, so no token, key or password of ours leaks into the code that
runs models. What an engine needs beyond this its options say (`env`), and the engine's adapter adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

MARK_REPLICA: Final = "RELUME_REPLICA"
MARK_DATA: Final = "RELUME_DATA_DIR"
"""Both in a process's environment: it is a replica's of the relume that owns that folder (see `stale`)."""

ALLOWED: Final = frozenset(
    {
        # where programs and libraries are
        "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV",
        # who and where the user is
        "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
        # where caches and certificates are (paths, no secrets)
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
        "TRANSFORMERS_CACHE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    }
)  # fmt: skip
ALLOWED_PREFIXES: Final = ("LC_",)


@dataclass(frozen=True, slots=True)
class Marks:
    """What identifies a replica's processes, and what it was given."""

    replica: str
    data_dir: str
    port: int | None
    """Where it listens; None: it does not."""
    cpu: float
    cards: tuple[str, ...] = ()
    """All cards it was granted."""
    devices: tuple[str, ...] = ()
    """The real ones among them, as CUDA names them."""


def child_environment(ours: Mapping[str, str], marks: Marks, engine: Mapping[str, str]) -> dict[str, str]:
    """The environment of a replica. The engine's own variables win, except over the marks and the cards."""
    made = {name: text for name, text in ours.items() if name in ALLOWED or name.startswith(ALLOWED_PREFIXES)}
    if marks.cpu > 0:
        # OpenMP, OpenBLAS and MKL otherwise start one thread per core of the machine
        threads = str(ceil(marks.cpu))
        made |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    made |= engine
    made |= {
        MARK_REPLICA: marks.replica,
        MARK_DATA: marks.data_dir,
        "RELUME_GPUS": ",".join(marks.cards),
        "CUDA_VISIBLE_DEVICES": ",".join(marks.devices),
        # NVIDIA's container hook reads this one; "void" is its word for none
        "NVIDIA_VISIBLE_DEVICES": ",".join(marks.devices) or "void",
        "PYTHONUNBUFFERED": "1",
    }
    return made if marks.port is None else made | {"RELUME_PORT": str(marks.port)}
