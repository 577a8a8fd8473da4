"""Several gateways' cores on a simulated network: delays, cuts, crashes, pauses; engines that see what is really run.

Clocks of gateways differ. Messages of one connection keep their order; nothing else is promised. The log delivers late,
and to a gateway that is cut off from it not at all.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from events.types.gateways import GatewayBeat
from events.types.replicas import ReplicaState, ReplicaStatus
from events.units import Instant
from runtime.core.commands import Command, Drained, Grant, Refuse
from runtime.core.frames import FromAuthority, Ping, ToAuthority
from runtime.core.holder import Holder
from runtime.core.ledger import Poll
from runtime.core.members import Member
from runtime.core.said import HangUp, Say, Tell
from runtime.core.sharing import Sharing
from runtime.ports import Ending, Lease, Outcome, RefusalCode, TicketRequest
from tests.support.slots import MODEL, budget, declared, observed, replica, ticket

TICK = 0.25
DRAIN_BOUND = 10.0
SILENT = 5.0
"""A connection over which nothing came for so long is given up."""


@dataclass
class Engine:
    """What a replica really runs."""

    status: ReplicaStatus
    running: set[str] = field(default_factory=set)
    most: int = 0

    def enter(self, request: str) -> None:
        self.running.add(request)
        self.most = max(self.most, len(self.running))
        assert len(self.running) <= self.status.slots, f"a slot was sold twice: {sorted(self.running)}"


@dataclass(frozen=True)
class Stands:
    """A beat as it stands in the log."""

    beat: GatewayBeat
    said_at: Instant
    appended_at: Instant


@dataclass(eq=False)
class Link:
    """A connection. `None` inside a queue is its end."""

    caller: Node
    callee: Node
    up: bool = True
    heard: dict[str, float] = field(default_factory=dict)
    queues: dict[str, deque[object]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)


@dataclass
class Asked:
    """A request, and all that it was told."""

    wanted: TicketRequest
    node: Node
    length: float
    answers: int = 0
    refusal: RefusalCode | None = None
    granted_at: float | None = None


class Node:
    """One life of a gateway."""

    def __init__(self, net: Net, name: str, boot: str, skew: float) -> None:
        self.net = net
        self.me = Member(name, boot)
        self.skew = skew
        self.holder = Holder(name, budget())
        self.sharing = Sharing(self.me, self.holder)
        self.alive = True
        self.paused = False
        self.stuck: list[Callable[[], None]] = []
        self.calls: dict[Member, Link] = {}
        """To authorities."""
        self.called: dict[Member, Link] = {}
        """From followers."""
        self.calling: set[Member] = set()
        self.leases: dict[str, Lease] = {}
        self.leaving = False

    @property
    def now(self) -> Instant:
        return Instant(self.net.now + self.skew)

    def run(self, work: Callable[[], None]) -> None:
        """Do something in this process: later if it is paused, never if it is dead."""
        if self.paused:
            self.stuck.append(work)
        elif self.alive:
            work()
            self.act()

    def act(self) -> None:
        """Do what the core wants."""
        while effects := self.sharing.take():
            for effect in effects:
                if isinstance(effect, Say):
                    self.net.send(self.calls.get(effect.member), self, effect.frame)
                elif isinstance(effect, Tell):
                    self.net.send(self.called.get(effect.member), self, effect.frame)
                elif isinstance(effect, HangUp):
                    self.net.hang_up(self.called.pop(effect.member, None))
                else:
                    self.command(effect)

    def command(self, command: Command) -> None:
        if isinstance(command, Grant):
            self.net.granted(self, command.lease)
        elif isinstance(command, Refuse):
            self.sharing.left(command.request, self.now)
            asked = self.net.asked[command.request]
            asked.answers += 1
            asked.refusal = command.refusal.code
        elif isinstance(command, Drained):
            assert not self.net.engines[command.replica].running, "said to be drained while it runs something"

    def tick(self) -> None:
        now = self.now
        self.sharing.tick(now)
        self.advance()
        for member in self.sharing.membership.addresses(now):
            if member not in self.calls and member not in self.calling:
                self.calling.add(member)
                self.net.call(self, member)
        for links in (self.calls, self.called):
            for member, link in list(links.items()):
                if self.net.now - link.heard.get(self.me.gateway, 0.0) > SILENT:
                    del links[member]
                    self.net.hang_up(link)
                    self.dropped(member, links)

    def advance(self) -> None:
        now = self.now
        while (due := self.holder.due()) is not None and due <= now:
            for command in self.holder.advance(now):
                self.command(command)
        while (due := self.sharing.authority.due()) is not None and due <= now:
            self.sharing.advance(now)

    def dropped(self, member: Member, links: dict[Member, Link]) -> None:
        if links is self.calls:
            self.sharing.lost(member)
        else:
            self.sharing.parted(member)

    def poll(self) -> None:
        for poll in self.sharing.authority.polls():
            self.net.ask_engine(self, poll)


class Net:
    """The world."""

    def __init__(self, rng: random.Random, *, slots: int = 1, counts: bool = True, slow: float = 0.05) -> None:
        self.rng = rng
        self.now = 1000.0
        self.slow = slow
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.nodes: dict[str, Node] = {}
        self.cut: set[frozenset[str]] = set()
        self.logless: set[str] = set()
        self.beats: dict[str, Stands] = {}
        self._read_at: dict[tuple[Member, str], float] = {}
        self.asked: dict[str, Asked] = {}
        self.engines: dict[str, Engine] = {}
        self.grants: list[str] = []
        status = replica(0, slots=slots, busy_path="/slots" if counts else "", cancels="always")
        self.engines[status.replica] = Engine(status)

    # Time

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, work))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, work = heapq.heappop(self._events)
            work()
        self.now = end

    def delay(self) -> float:
        return self.rng.choice((0.0005, 0.001, 0.005, self.slow)) * self.rng.uniform(0.5, 1.5)

    # Gateways

    def start(self, name: str) -> Node:
        self._count += 1
        node = Node(self, name, f"{name}.{self._count}", self.rng.uniform(-50.0, 50.0))
        self.nodes[name] = node
        model = declared(total=20.0)
        node.holder.declare(model, node.now)
        self.observe(node)
        late = self.rng.choice((0.0, 0.0, 0.1, 2.0))  # topics are read in any order: others may present tickets before
        self.after(late, lambda: node.run(lambda: node.sharing.declare(model, node.now)))
        for stands in list(self.beats.values()):
            self.deliver_beat(node, stands)
        self.repeat(node, 1.0, lambda: self.beat(node))
        self.repeat(node, TICK, node.tick)
        self.repeat(node, 0.1, node.poll)
        self.repeat(node, 0.05, node.advance)
        return node

    def repeat(self, node: Node, every: float, work: Callable[[], None]) -> None:
        def again() -> None:
            if node.alive:
                if not node.paused:
                    node.run(work)
                self.after(every, again)

        self.after(self.rng.uniform(0.0, 0.05), again)

    def beat(self, node: Node) -> None:
        if node.me.gateway in self.logless:
            return
        name = node.me.gateway
        beat = GatewayBeat(gateway=name, boot=node.me.boot, peer_address=f"{name}:1", leaving=node.leaving)
        stands = Stands(beat, node.now, Instant(self.now))
        self.beats[node.me.gateway] = stands
        for other in self.nodes.values():
            self.deliver_beat(other, stands)

    def deliver_beat(self, node: Node, stands: Stands) -> None:
        def read() -> None:
            if node.me.gateway not in self.logless:
                node.run(lambda: node.sharing.beat(stands.beat, stands.said_at, stands.appended_at, node.now))

        key = (node.me, stands.beat.gateway)
        at = self._read_at[key] = max(self._read_at.get(key, 0.0), self.now + self.delay())  # one partition a gateway
        self.after(at - self.now, read)

    def kill(self, name: str) -> None:
        """kill -9: the kernel closes its connections; the engine notices, or does not, a while later."""
        node = self.nodes.pop(name)
        node.alive = False
        for link in (*node.calls.values(), *node.called.values()):
            self.hang_up(link)
        for asked in self.asked.values():
            if asked.node is node:
                asked.answers = max(asked.answers, 1)  # its client sees the connection break
        for request in [request for request, asked in self.asked.items() if asked.node is node]:
            self.after(self.rng.uniform(0.0, 3.0), lambda request=request: self.end(request))  # type: ignore[misc]  # bound in the loop

    def pause(self, name: str, seconds: float) -> None:
        node = self.nodes[name]
        node.paused = True

        def go_on() -> None:
            node.paused = False
            stuck, node.stuck = node.stuck, []
            for work in stuck:
                node.run(work)

        self.after(seconds, go_on)

    def leave(self, name: str) -> None:
        """SIGTERM: it takes no model any more, and ends when nothing of it runs or waits, or at its drain bound."""
        node = self.nodes[name]
        if node.leaving or not node.alive:
            return
        node.leaving = True
        node.run(lambda: node.sharing.leave_all(node.now))
        node.run(lambda: self.beat(node))
        bound = self.now + DRAIN_BOUND

        def gone() -> None:
            if node.alive and (node.leases or (self.now < bound and list(node.holder.asks(node.now)))):
                self.after(0.2, gone)
            elif node.alive and self.nodes.get(name) is node:
                for command in node.holder.shutdown(node.now):
                    node.command(command)
                self.kill(name)

        self.after(0.2, gone)

    # The network

    def call(self, node: Node, member: Member) -> None:
        def arrive() -> None:
            if frozenset((node.me.gateway, member.gateway)) in self.cut:
                self.after(1.0, lambda: node.run(lambda: node.calling.discard(member)))
                return
            other = self.nodes.get(member.gateway)
            if other is None or other.me != member:
                node.run(lambda: self.refused(node, member))
            elif other.paused:
                self.after(1.0, lambda: node.run(lambda: node.calling.discard(member)))
            else:
                node.run(lambda: self.connect(node, other))

        self.after(self.delay(), arrive)

    def refused(self, node: Node, member: Member) -> None:
        node.calling.discard(member)
        node.sharing.refused(member, node.now)

    def connect(self, node: Node, other: Node) -> None:
        node.calling.discard(other.me)
        if not other.alive:
            return
        link = Link(node, other)
        link.heard = {node.me.gateway: self.now, other.me.gateway: self.now}
        node.calls[other.me] = link
        self.hang_up(other.called.pop(node.me, None))
        other.called[node.me] = link
        self.send(link, other, Ping(other.now))

    def send(self, link: Link | None, sender: Node, frame: ToAuthority | FromAuthority) -> None:
        if link is None or not link.up:
            return
        self._send(link, sender, frame)

    def _send(self, link: Link, sender: Node, frame: object) -> None:
        side = sender.me.gateway
        queue = link.queues.setdefault(side, deque())
        queue.append(frame)
        at = max(link.last.get(side, 0.0), self.now + self.delay())
        link.last[side] = at
        self.after(at - self.now, lambda: self.deliver(link, sender))

    def deliver(self, link: Link, sender: Node) -> None:
        receiver = link.callee if sender is link.caller else link.caller
        queue = link.queues[sender.me.gateway]
        if frozenset((sender.me.gateway, receiver.me.gateway)) in self.cut:
            self.after(0.5, lambda: self.deliver(link, sender))  # sent again until it comes through
            return
        if not queue:
            return
        frame = queue.popleft()
        receiver.run(lambda: self.receive(link, sender, receiver, frame))

    def receive(self, link: Link, sender: Node, receiver: Node, frame: object) -> None:
        links = receiver.calls if receiver is link.caller else receiver.called
        if links.get(sender.me) is not link:
            return
        if frame is None:
            del links[sender.me]
            receiver.dropped(sender.me, links)
            return
        link.heard[receiver.me.gateway] = self.now
        if receiver is link.caller:
            receiver.sharing.from_authority(sender.me, frame, receiver.now)  # type: ignore[arg-type]  # by direction
        else:
            receiver.sharing.from_follower(sender.me, frame, receiver.now)  # type: ignore[arg-type]  # by direction

    def hang_up(self, link: Link | None) -> None:
        if link is not None and link.up:
            link.up = False
            for sender in (link.caller, link.callee):
                self._send(link, sender, None)

    # Engines

    def observe(self, node: Node) -> None:
        seen = observed(*(engine.status for engine in self.engines.values()))
        for command in node.holder.observe(seen, node.now):
            node.command(command)
        node.sharing.observe(seen, node.now)
        node.act()

    def drain(self, name: str) -> None:
        """A replica is to go: all gateways read it a little later."""
        engine = self.engines[name]
        engine.status = ReplicaStatus(**{**_fields(engine.status), "state": ReplicaState.DRAINING})
        for node in self.nodes.values():
            self.after(self.delay(), lambda node=node: node.run(lambda: self.observe(node)))  # type: ignore[misc]  # bound in the loop

    def ask_engine(self, node: Node, poll: Poll) -> None:
        asked_at = node.now
        engine = self.engines[poll.replica]

        def answer() -> None:
            count = len(engine.running)
            self.after(0.003, lambda: node.run(lambda: self.told(node, poll, count, asked_at)))

        self.after(0.003, answer)

    @staticmethod
    def told(node: Node, poll: Poll, count: int, asked_at: Instant) -> None:
        node.sharing.engine_running(poll, count, asked_at, node.now)

    # Requests

    def ask(self, node: Node, caller: str = "a", *, length: float = 1.0, wait: float = 60.0) -> str:
        request = f"{node.me.boot}-{len(self.asked)}"
        wanted = ticket(request, node.now, caller=caller, wait=wait, stream=True)
        self.asked[request] = Asked(wanted, node, length)
        node.run(lambda: self.take(node, wanted))
        return request

    @staticmethod
    def take(node: Node, wanted: TicketRequest) -> None:
        for command in node.holder.take(wanted, node.now):
            node.command(command)
        if node.holder.waiting(wanted.request):
            node.sharing.asks(wanted, node.now)

    def granted(self, node: Node, lease: Lease) -> None:
        asked = self.asked[lease.request]
        asked.answers += 1
        asked.granted_at = self.now
        self.grants.append(lease.request)
        node.leases[lease.request] = lease
        self.after(self.rng.uniform(0.0, 0.02), lambda: self.dispatch(node, lease))

    def dispatch(self, node: Node, lease: Lease) -> None:
        if node.alive:
            self.engines[lease.replica].enter(lease.request)
            self.after(self.asked[lease.request].length, lambda: node.run(lambda: self.finish(node, lease)))

    def finish(self, node: Node, lease: Lease) -> None:
        """The answer is whole, or its client has left and the engine is told, which stops a little later."""
        del node.leases[lease.request]
        outcome = Outcome(Ending.FINISHED, status=200)
        if self.rng.random() < 0.2:
            outcome = Outcome(Ending.CLIENT_LEFT, engine_done=False)
            self.after(self.rng.uniform(0.0, 0.2), lambda: self.end(lease.request))
        else:
            self.end(lease.request)
        node.sharing.given_back(lease, outcome, node.now)
        for command in node.holder.give_back(lease.id, outcome, node.now):
            node.command(command)

    def unknown(self) -> set[str]:
        """Requests that wait for longer than any word takes, while all are well, and of which their authority knows
        nothing: they would wait until their deadline."""
        before = self._unknown()
        self.run(2.0)
        return before & self._unknown()

    def _unknown(self) -> set[str]:
        found = set()
        for node in self.nodes.values():
            owner = node.sharing.allegiance.authority_of(MODEL)
            other = None if owner is None else self.nodes.get(owner.gateway)
            known = {} if other is None else other.sharing.authority._models[MODEL].tickets
            asks = node.holder.asks(node.now)
            found |= {asked.request for asked in asks if f"{node.me.gateway}/{asked.request}" not in known}
        return found

    def end(self, request: str) -> None:
        for engine in self.engines.values():
            engine.running.discard(request)


def _fields(status: ReplicaStatus) -> dict[str, object]:
    return {name: getattr(status, name) for name in ReplicaStatus.__slots__}  # type: ignore[attr-defined]  # a slotted dataclass


__all__ = ("MODEL", "Engine", "Net", "Node")
