"""An answer that is no: what, why, and what to do about it."""

from __future__ import annotations


class Refused(Exception):
    """The command cannot do what it was asked: not found, refused, failed, cannot reach."""

    def __init__(self, what: str, *, why: str = "", remedy: str = "", name: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy
        self.name = name
        """The last part of the problem's type, where the admin API said no."""

    def text(self) -> str:
        """For people, on standard error."""
        lines = [f"error: {self.what}"]
        if self.why:
            lines += [f"  {line}" for line in self.why.splitlines()]
        if self.remedy:
            lines.append(f"  try: {self.remedy}")
        return "\n".join(lines)
