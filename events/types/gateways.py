"""`relume.gateways`: which gateways live. Written by each gateway, each second; followed by everyone."""

from __future__ import annotations

from events.kinds import event
from events.names import Topic


@event("relume.gateway.beat", Topic.GATEWAYS)
class GatewayBeat:
    """A gateway lives. State of key ``gateway/NAME``; `boot` is new at each start.

    `leaving`: it takes no new requests.
    """

    gateway: str
    boot: str
    peer_address: str = ""
    leaving: bool = False
