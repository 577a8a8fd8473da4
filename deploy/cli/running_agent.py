"""The cache's folder has one writer: when that is a running relume, commands that write are asked of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from coldstart.cache.wanting import Progress
from coldstart.core.cache.errors import FolderTaken
from deploy.cli.connection import Connection, Question, Target

PLACES: Final = ("endpoints.json", "agent/endpoints.json")
"""Where `relume up` or `cluster`, and `relume agent`, say where they listen; in the data folder."""


def agent_of(taken: FolderTaken, data_dir: Path) -> Connection:
    """The relume that writes to the folder. Raises `taken` again where that is none, or it does not say where."""
    for place in PLACES:
        try:
            told = json.loads((data_dir / place).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and told.get("pid") == taken.pid and isinstance(told.get("admin"), str):
            return Connection(_target(told["admin"]))
    raise taken


def is_agent(taken: FolderTaken, data_dir: Path) -> bool:
    """Whether the folder's writer is a relume."""
    try:
        agent_of(taken, data_dir)
    except FolderTaken:
        return False
    return True


def _target(url: str) -> Target:
    """The same variables as of commands that talk to a relume."""
    token, file = os.environ.get("RELUME_ADMIN_TOKEN", ""), os.environ.get("RELUME_ADMIN_TOKEN_FILE")
    if not token and file:
        token = Path(file).read_text(encoding="utf-8").strip()
    ca, cert, key = (os.environ.get(f"RELUME_ADMIN_{name}") for name in ("CA", "CERT", "KEY"))
    return Target(url, token, *(None if path is None else Path(path) for path in (ca, cert, key)))


def ask(connection: Connection, operation: str, **body: object) -> dict[str, Any]:
    """One question about the cache. Refused when the answer is no."""
    question = Question("POST", f"/v1alpha1/cache/{operation}", body=json.dumps(body).encode())
    answer: dict[str, Any] = connection.ask(question)
    return answer


def fetch(
    connection: Connection, wanted: dict[str, object], seen: Callable[[int, int], None]
) -> dict[str, Any]:  # fmt: skip
    """Have weights fetched by the agent; `seen(total, done)` hears how it gets on. The answer with its path."""
    while True:
        answer = ask(connection, "fetch", **wanted)
        if answer["path"]:
            return answer
        seen(answer["bytes"], answer["done"])


def steps(progress: Progress) -> Callable[[int, int], None]:
    """Tell a progress bar what is heard now and then."""
    told = [0, 0]

    def seen(total: int, done: int) -> None:
        if total != told[0] or done < told[1]:
            progress.begins(total)
            told[:] = [total, 0]
        progress.verified(done - told[1])
        told[1] = done

    return seen
