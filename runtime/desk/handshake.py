"""How two gateways meet: versions, names, and proof that both know the shared secret.

The caller says who it is and sends a nonce; the called one answers alike, with a proof over both nonces and names; the
caller proves itself too. The secret itself never travels. Without a secret the proofs are empty.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from runtime.core.members import Member
from runtime.desk.wire import MAJOR, MINOR, Garbled


class Unwelcome(Exception):
    """The other one is not to be talked to; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who one of the two is."""

    major: int
    minor: int
    member: Member
    nonce: str

    def values(self) -> tuple[object, ...]:
        """As it travels."""
        return (self.major, self.minor, self.member.gateway, self.member.boot, self.nonce)


def read_hello(values: list[object]) -> Hello:
    """Raises Garbled, and Unwelcome for another major version; of a newer minor one the rest is skipped."""
    if len(values) < 5 or not all(isinstance(value, int) for value in values[:2]):
        raise Garbled("hello does not begin with two numbers of a version and three words")
    major, minor, gateway, boot, nonce = values[:5]
    if major != MAJOR:
        raise Unwelcome(
            f"it speaks version {major}.{minor} of the gateways' talk, this one {MAJOR}.{MINOR}; update the older one "
            "(two releases in a row understand each other)"
        )
    if not (isinstance(gateway, str) and isinstance(boot, str) and isinstance(nonce, str) and len(nonce) >= 16):
        raise Garbled("hello names no gateway, boot and nonce")
    return Hello(MAJOR, minor if isinstance(minor, int) else 0, Member(gateway, boot), nonce)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One side of a handshake."""

    me: Member
    secret: bytes = b""
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def hello(self) -> Hello:
        """What we say."""
        return Hello(MAJOR, MINOR, self.me, self.nonce)

    def proof(self, role: str, other: Hello) -> str:
        """That we, who `called` or were `asked`, know the secret."""
        return self._made(role, self.hello, other)

    def check(self, role: str, other: Hello, shown: object) -> None:
        """Whether the other one knows it. Raises Unwelcome."""
        expected = self._made(role, other, self.hello)
        if not isinstance(shown, str) or not hmac.compare_digest(shown.encode(), expected.encode()):
            ours = "this one has a secret" if self.secret else "this one has none"
            raise Unwelcome(f"its proof of the shared secret is wrong ({ours}); give all gateways the same secret file")

    def _made(self, role: str, prover: Hello, other: Hello) -> str:
        if not self.secret:
            return ""
        said = "\0".join((role, *map(str, prover.values()), *map(str, other.values())))
        return hmac.new(self.secret, said.encode(), hashlib.sha256).hexdigest()
