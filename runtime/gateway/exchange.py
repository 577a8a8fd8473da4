"""One request's life, from its last byte read to its lease given back: the state machine of `runtime.gateway.states`.

A lease is given back in exactly one place, `_give_back`. The client may be gone long before that.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from events.units import Instant
from runtime.core.policy import Cancels
from runtime.gateway.access_log import AccessLine
from runtime.gateway.answer import Answer
from runtime.gateway.budgets import RunClock
from runtime.gateway.errors import Failure, Refused, of_refusal, unknown_model
from runtime.gateway.heartbeat import Beats
from runtime.gateway.models import model_entry, model_list
from runtime.gateway.request import Request
from runtime.gateway.response_head import ResponseHead
from runtime.gateway.routing import BY_JSON, By, Target, read_body
from runtime.gateway.states import DISPATCHED, DONE, DRAINING, HELD, NEXT, READ, RELAYING, State
from runtime.gateway.upstream import UpstreamConnection
from runtime.ports import Ending, Lease, Outcome, Refusal, TicketRequest

if TYPE_CHECKING:
    from runtime.gateway.client_connection import ClientConnection
    from runtime.gateway.context import GatewayContext


_FINISHED: Final = Ending.FINISHED
_CLIENT_LEFT: Final = Ending.CLIENT_LEFT
_MOST_KNOWN: Final = 1024


class Exchange:
    """The waiter of its ticket and the sink of its answer."""

    __slots__ = (
        "_answer", "_attempt", "_beats", "_client", "_clock", "_context", "_lease", "_own", "_pooled", "_served",
        "_ticket", "_tries", "_upstream", "request", "state",
    )  # fmt: skip

    # Set once the request has a route; never read before.
    _ticket: TicketRequest
    _clock: RunClock

    def __init__(self, context: GatewayContext, client: ClientConnection, request: Request) -> None:
        head = request.head
        self.request = request
        self.state = READ
        self._answer = Answer(client, head.minor, head.method == b"HEAD", head.keep_alive)
        self._context = context
        self._client = client
        self._own = b"x-relume-request-id: %b\r\n" % request.told
        self._beats: Beats | None = None
        self._lease: Lease | None = None
        self._served: Lease | None = None
        """The last lease, when it is given back."""
        self._upstream: UpstreamConnection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._pooled = False
        self._tries = 0

    def start(self) -> None:
        """Find the model and ask for a slot, or answer at once."""
        context = self._context
        context.exchanges.add(self)
        target = self.request.target
        try:
            if type(target) is Target and target.by is BY_JSON:
                self._enqueue()
                return
            own = self._local()
            if own is None:
                self._enqueue()
        except Refused as refused:
            self._fail(refused.failure)
            return
        if own is not None:
            self._keep_alive_unless_draining()
            self._answer.whole(200, self._own, own)
            self._done("answered_here", self._answer.keep_alive)

    def _local(self) -> bytes | None:
        """The answer to a request that is for the gateway itself."""
        target = self.request.target
        if isinstance(target, Failure):
            raise Refused(target)
        if target.by is By.LIST:
            return model_list(self._context.catalog)
        if target.by is By.ENTRY:
            return model_entry(self._context.catalog, target.name)
        return None

    def _enqueue(self) -> None:
        context, request = self._context, self.request
        assert isinstance(request.target, Target)
        name, stream = read_body(request.target, request.head, request.body, context.settings)
        route = context.slots.route(name)
        if route is None:
            raise Refused(unknown_model(name))
        caller = context.identities.caller(request.head.noted.get(b"authorization"))
        self._ticket = request.ticket(route, caller, stream)
        self._clock = RunClock(route.timeouts)
        if stream and route.heartbeat is not None:
            self._beats = Beats(route.heartbeat.every, context.clock.now())
        assert self.state is READ  # `_go`, written out here and in three more steps that every request takes
        self.state = HELD
        self._take(request.arrived_at)

    # The ticket

    def leased(self, lease: Lease) -> None:
        """A slot is ours: dispatch."""
        self._dispatch(lease, self._context.clock.now())

    def _dispatch(self, lease: Lease, now: Instant) -> None:
        assert self.state is HELD
        self.state = DISPATCHED
        self._lease = lease
        self._tries += 1
        context = self._context
        context.wheel.wake_by(self._client, self._clock.dispatch(now))
        upstream = context.pool.take((lease.host, lease.port))
        if upstream is None:
            self._pooled = False
            self._attempt = context.pool.connect((lease.host, lease.port), self)
        else:
            self._pooled = True
            self._send(upstream, lease)

    def refused(self, refusal: Refusal) -> None:
        """There will be no slot."""
        self._fail(of_refusal(refusal))

    def _take(self, now: Instant) -> None:
        lease = self._context.slots.take(self._ticket, self)
        if lease is not None:
            self._dispatch(lease, now)
        elif self.state is HELD:  # not refused within the call
            self._wake_by(self._held_until())

    # The replica's connection

    def connected(self, connection: UpstreamConnection) -> None:
        """A new connection is open."""
        self._attempt = None
        assert self._lease is not None
        self._send(connection, self._lease)

    def connect_failed(self, reason: str) -> None:
        """The replica was not reached."""
        self._attempt = None
        self._unreachable(reason)

    def _send(self, upstream: UpstreamConnection, lease: Lease) -> None:
        self._upstream = upstream
        request = self.request
        head = request.for_engine(lease, plain=self._answer.committed)
        upstream.send(self, head, request.body, request.head.method == b"HEAD")

    def _unreachable(self, reason: str) -> None:
        """Nothing was relayed: another try with the same arrival, or 502."""
        assert self._lease is not None
        if self._tries < self._context.settings.tries:
            self._go(HELD)
            self._give_back(Ending.UNREACHABLE)
            self._ticket = self._ticket.again(self._tries)
            self._take(self._context.clock.now())
        else:
            message = f"The replica {self._lease.replica} could not be reached: {reason}."
            self._end(Ending.UNREACHABLE, Failure(502, "replica_unreachable", message, should_retry=True))

    # The answer

    def answer_begins(self, head: ResponseHead, payload: bytes, ended: bool) -> None:
        """The engine's head: relay it with ours. `ended`: `answer_ended` follows at once."""
        clock = self._clock
        clock.first_byte_at = clock.last_byte_at = self._context.clock.now()
        if self.state is DRAINING:
            return
        assert self.state is DISPATCHED
        self.state = RELAYING
        request = self.request
        if request.body:  # `_release_body`
            self._context.buffered_bytes -= request.size
            request.body = b""
        if self._context.draining:
            self._answer.keep_alive = False
        lease = self._lease
        assert lease is not None
        self._answer.begin(head, self._own + _held_lines(lease), payload)
        if not ended:
            self._wake_by(clock.until_next_byte(math.inf)[0])

    def answer_bytes(self, data: bytes) -> None:
        """More of the body."""
        if self.state is RELAYING:
            self._clock.last_byte_at = self._context.clock.now()
            self._answer.write(data)

    def answer_ended(self) -> None:
        """The engine is done with the request."""
        self._upstream = None
        self._end(Ending.CLIENT_LEFT if self.state is DRAINING else _FINISHED)

    def answer_lost(self, reason: str) -> None:
        """The connection to the replica is gone."""
        upstream, self._upstream = self._upstream, None
        lease = self._lease
        assert lease is not None
        if self.state is DRAINING:
            self._end(Ending.CLIENT_LEFT)
        elif self.state is RELAYING:
            message = f"The replica {lease.replica} failed while it answered: {reason}."
            self._end(Ending.BROKEN, Failure(502, "replica_failed", message, should_retry=True))
        elif self._pooled and upstream is not None and not upstream.heard:
            # It was closed while it waited in the pool, which says nothing about the replica: once more, on a new one.
            self._pooled = False
            self._attempt = self._context.pool.connect((lease.host, lease.port), self)
        else:
            self._unreachable(reason)

    def answer_bad(self, reason: str) -> None:
        """The engine broke the protocol. It may still be at the request, since it was us who closed."""
        self._upstream = None
        ending = Ending.CLIENT_LEFT if self.state is DRAINING else Ending.BROKEN
        message = f"The engine's answer is not valid HTTP: {reason}."
        self._end(ending, Failure(502, "bad_engine_answer", message), engine_done=False)

    # The client

    def client_gone(self) -> None:
        """The connection is closed: leave the queue, cancel, or read the answer to its end."""
        if self.state is HELD:
            self._context.slots.leave(self._ticket.request)
            self._done(Ending.CLIENT_LEFT, keep_alive=False)
        elif self.state in {DISPATCHED, RELAYING}:
            lease = self._lease
            assert lease is not None
            cancels = lease.cancels is Cancels.ALWAYS or (lease.cancels is Cancels.STREAMS and self._ticket.stream)
            if self._attempt is not None or cancels:
                # While still connecting nothing was sent, so the engine has nothing to be done with.
                self._end(Ending.CLIENT_LEFT, engine_done=self._attempt is not None)
            else:
                self._go(DRAINING)
                self._release_body()
                if self._upstream is not None:
                    self._upstream.resume()
                self._wake_by(self._clock.until_end()[0])

    def client_full(self) -> None:
        """The client does not read as fast as the engine writes."""
        if self.state is RELAYING and self._upstream is not None:
            self._upstream.pause()
            self._clock.stalled_at = self._context.clock.now()
            self._wake_by(self._clock.until_next_byte(self._context.settings.stall_timeout)[0])

    def client_drained(self) -> None:
        """The client has caught up."""
        if self.state is RELAYING and self._clock.stalled_at != math.inf:
            self._clock.stalled_at = math.inf
            self._clock.last_byte_at = self._context.clock.now()
            self._wake_by(self._clock.until_next_byte(math.inf)[0])
            if self._upstream is not None:
                self._upstream.resume()

    def shut_down(self) -> None:
        """The drain bound has passed: end now, visibly."""
        failure = Failure(503, "gateway_shutting_down", "The gateway is shutting down.", should_retry=True)
        if self.state is HELD:
            self._context.slots.leave(self._ticket.request)
            self._fail(failure)
        elif self.state is not DONE:
            self._end(Ending.CLIENT_LEFT, failure, engine_done=self._attempt is not None)

    # Deadlines

    def wake(self, now: Instant) -> float | None:
        """Act on what is due: a heartbeat, or the end of a budget."""
        if self.state is HELD:
            return self._wake_held(now)
        if self.state is DISPATCHED:
            due, code = self._clock.until_first_byte()
        elif self.state is RELAYING:
            due, code = self._clock.until_next_byte(self._context.settings.stall_timeout)
        elif self.state is DRAINING:
            due, code = self._clock.until_end()
        else:
            return None
        if now < due:
            return due
        if code == "client_stalled":
            self._client.abort()  # client_gone follows
        else:
            budget = code.removesuffix("_timeout").replace("_", " ")
            message = f"The engine was not done in time: its {budget} budget ran out."
            self._end(Ending.TIMED_OUT, Failure(504, code, message), engine_done=False)
        return None

    def _wake_held(self, now: Instant) -> float | None:
        ticket = self._ticket
        if now >= ticket.deadline + self._context.settings.hold_grace:
            self._context.slots.leave(ticket.request)
            self._fail(Failure(504, "deadline_exceeded", "The deadline passed while the request was held."))
            return None
        if self._beats is not None and now >= self._beats.next_at:
            self._keep_alive_unless_draining()
            self._beats.beat(now, self._answer, self._own, self._context.slots.progress(ticket.request))
        return self._held_until()

    def _held_until(self) -> float:
        give_up = self._ticket.deadline + self._context.settings.hold_grace
        return give_up if self._beats is None else min(give_up, self._beats.next_at)

    def _wake_by(self, instant: float) -> None:
        self._context.wheel.wake_by(self._client, instant)

    # Ends

    def _end(self, ending: Ending, failure: Failure | None = None, *, engine_done: bool = True) -> None:
        """End a dispatched request: close what is open, answer or break off, give the lease back."""
        client_left = self.state is DRAINING or ending is _CLIENT_LEFT
        begun = self.state is RELAYING
        assert self.state is not DONE  # `_go`, written out
        self.state = DONE
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        keep_alive = False
        if failure is not None:
            keep_alive = self._answer.fail(failure, self._own) and self._answer.keep_alive
        elif begun and not client_left:
            keep_alive = self._answer.finish() and self._answer.keep_alive
        self._give_back(ending, engine_done)
        self._finish(ending if failure is None else failure.code, keep_alive)

    def _fail(self, failure: Failure) -> None:
        """Refuse a request that has no lease."""
        self._keep_alive_unless_draining()
        whole = self._answer.fail(failure, self._own)
        self._done(failure.code, whole and self._answer.keep_alive)

    def _done(self, ending: str, keep_alive: bool) -> None:
        self._go(DONE)
        self._finish(ending, keep_alive)

    def _finish(self, ending: str, keep_alive: bool) -> None:
        context = self._context
        if self.request.body:
            self._release_body()
        context.exchanges.discard(self)
        if context.log is not None:
            context.log.add(self._line(ending))
        self._client.answered(keep_alive)
        if context.draining:
            context.look_if_quiet()

    def _give_back(self, ending: Ending, engine_done: bool = True) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        self._served = lease
        answer = self._answer
        taken, made = answer.tokens()
        outcome = Outcome(
            ending,
            engine_done,
            answer.status,
            self._clock.first_byte_at,
            taken,
            made,
            self.request.size,
            answer.bytes_out,
        )
        self._context.slots.give_back(lease, outcome)

    def _line(self, ending: str) -> AccessLine:
        request, answer, served = self.request, self._answer, self._served
        return AccessLine(
            time=request.arrived_at,
            request=request.told.decode(),
            trace=request.trace,
            method=request.head.method,
            path=request.head.path,
            model=request.model,
            caller=request.caller,
            status=answer.status,
            ending=ending,
            ms=(self._context.clock.now() - request.arrived_at) * 1000,
            held_ms=served.held_seconds * 1000 if served is not None else None,
            replica=served.replica if served is not None else None,
            bytes_in=request.size,
            bytes_out=answer.bytes_out,
        )

    def _release_body(self) -> None:
        if self.request.body:
            self._context.buffered_bytes -= self.request.size
            self.request.body = b""

    def _keep_alive_unless_draining(self) -> None:
        if self._context.draining:
            self._answer.keep_alive = False

    def _go(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


_at_once: Final[dict[str, bytes]] = {}
"""What clients are told of leases that nobody had to wait for, by replica."""


def _held_lines(lease: Lease) -> bytes:
    """What a client is told of its lease."""
    if lease.held_seconds or lease.cold:
        return _held_line(lease.replica, lease.cold, int(lease.held_seconds * 1000))
    known = _at_once.get(lease.replica)
    if known is None:
        if len(_at_once) >= _MOST_KNOWN:
            _at_once.clear()
        known = _at_once[lease.replica] = _held_line(lease.replica, False, 0)
    return known


def _held_line(replica: str, cold: bool, held_ms: int) -> bytes:
    return b"x-relume-replica: %b\r\nx-relume-cold-start: %b\r\nx-relume-held-ms: %d\r\n" % (
        replica.encode("ascii"), b"true" if cold else b"false", held_ms,
    )  # fmt: skip
