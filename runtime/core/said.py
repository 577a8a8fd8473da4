"""What one of several gateways wants said to others, or done here."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.core.commands import Command
from runtime.core.frames import FromAuthority, ToAuthority
from runtime.core.members import Member


@dataclass(frozen=True, slots=True)
class Tell:
    """As an authority, say something to a gateway that follows us, or to our own."""

    member: Member
    frame: FromAuthority


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the connection of a gateway that follows us: it shall come again and present itself anew."""

    member: Member


@dataclass(frozen=True, slots=True)
class Say:
    """Say something to an authority that we follow."""

    member: Member
    frame: ToAuthority


Said = Tell | HangUp | Command

Effect = Say | Said
