"""Several gateways on real sockets: leases through another's authority, hand-overs, secrets, what is said to whom."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from events.log import Query
from events.names import GatewayName, Topic
from events.types.gateways import GatewayBeat
from events.types.phases import ReplicaDrained
from events.types.replicas import ReplicaState
from events.types.requests import RequestWindow
from events.writer import EventWriter
from runtime.core.sharing import _code
from runtime.desk.desk import DeskSettings
from runtime.desk.peers import PeerSettings
from runtime.desk.shared import SharedDesk
from runtime.desk.wire import line
from runtime.ports import Ending, Lease, Outcome, Refusal
from tests.support.certificates import Authority
from tests.support.desk import Asker, declaration
from tests.support.several import MODEL, PEERS, Gateway, Several, served_by, several, simulated
from tests.support.slots import replica, ticket
from tests.support.waiting import until

DONE = Outcome(Ending.FINISHED, status=200)


def ask(several: Several, gateway: Gateway, request: str, *, caller: str = "x", wait: float = 60.0) -> Asker:
    """A request at a gateway, without a client."""
    asker = Asker(request)
    lease = gateway.desk.take(ticket(request, several.clock.now(), caller=caller, wait=wait), asker)
    if lease is not None:
        asker.leased(lease)
    return asker


async def leased(asker: Asker) -> Lease:
    await until(lambda: asker.lease is not None)
    assert asker.lease is not None
    return asker.lease


async def warm(several: Several, slots: int = 1) -> tuple[Gateway, list[Gateway]]:
    """One replica is ready; its authority, and the others."""
    await several.observe(replica(0, slots=slots))
    owner = several.gateways[await several.until_agreed()]
    return owner, [gateway for gateway in several.gateways.values() if gateway is not owner]


async def test_one_slot_goes_round_all_gateways_in_order() -> None:
    """The authority's own requests have it at once, others after a round trip; whoever waits is served in order."""
    async with several("a", "b", "c") as s:
        owner, (one, two) = await warm(s)
        first = ask(s, owner, "1")
        assert first.lease is not None  # at once, in the call
        waiting = [ask(s, one, "2")]
        for gateway, request in ((two, "3"), (owner, "4"), (one, "5")):
            await until(lambda: len(owner.desk._sharing.authority._models[MODEL].tickets) == len(waiting))
            waiting.append(ask(s, gateway, request))
        last, holder = first, owner
        for asker, gateway in zip(waiting, (one, two, owner, one), strict=True):
            assert asker.lease is None
            assert last.lease is not None
            holder.desk.give_back(last.lease, DONE)
            await leased(asker)
            last, holder = asker, gateway
        assert last.lease is not None
        assert last.lease.held_seconds > 0
        holder.desk.give_back(last.lease, DONE)


async def test_callers_take_turns_over_all_gateways() -> None:
    """A caller that floods one gateway does not keep another's request at another gateway waiting."""
    async with several("a", "b", "c") as s:
        owner, (one, two) = await warm(s)
        first = ask(s, one, "first")
        lease = await leased(first)
        flood = [ask(s, one, f"f{index}", caller="flood") for index in range(20)]
        await until(lambda: len(owner.desk._sharing.authority._models[MODEL].tickets) == 20)
        other = ask(s, two, "other", caller="other")
        await until(lambda: len(owner.desk._sharing.authority._models[MODEL].tickets) == 21)
        one.desk.give_back(lease, DONE)
        one.desk.give_back(await leased(flood[0]), DONE)
        two.desk.give_back(await leased(other), DONE)
        for asker in flood[1:]:
            one.desk.give_back(await leased(asker), DONE)


async def test_only_the_gateway_that_holds_a_request_counts_it() -> None:
    """Windows of the others say nothing of it, whoever its authority is; held seconds are those of the slot's wait."""
    async with several("a", "b") as s:
        owner, (other,) = await warm(s)
        blocked = ask(s, owner, "1")
        asker = ask(s, other, "2")
        await until(lambda: other.desk.statuses()[0].held == 1)
        assert owner.desk.statuses()[0].held == 0
        assert owner.desk.statuses()[0].running == 1
        assert blocked.lease is not None
        owner.desk.give_back(blocked.lease, DONE)
        lease = await leased(asker)
        assert (other.desk.statuses()[0].running, owner.desk.statuses()[0].running) == (1, 0)
        other.desk.give_back(lease, DONE)
        windows: list[RequestWindow] = []

        async def told() -> bool:
            records = [record async for record in s.log.read(Query(Topic.REQUESTS))]
            windows[:] = [it.envelope.data for it in records if isinstance(it.envelope.data, RequestWindow)]
            return {window.gateway for window in windows if window.finishes} == {"a", "b"}

        async with asyncio.timeout(10):
            while not await told():  # noqa: ASYNC110 - it is written by the log's own task
                await asyncio.sleep(0.05)
        last = {(it.gateway, it.started_at): it for it in windows}.values()
        for name in ("a", "b"):
            assert sum(window.arrivals for window in last if window.gateway == name) == 1
            assert sum(window.starts for window in last if window.gateway == name) == 1


async def test_who_leaves_waits_no_more() -> None:
    """Its place is the next one's; a grant that crosses its leave is given back."""
    async with several("a", "b") as s:
        owner, (other,) = await warm(s)
        held = await leased(ask(s, other, "1"))
        gone, stays = ask(s, other, "2"), ask(s, other, "3")
        other.desk.leave("2")
        other.desk.give_back(held, DONE)
        lease = await leased(stays)
        assert gone.lease is None
        crossing = ask(s, other, "4")
        other.desk.give_back(lease, DONE)  # its slot is granted to 4 over there, while
        other.desk.leave("4")  # it goes here
        other.desk.give_back(await leased(ask(s, other, "5")), DONE)
        assert crossing.lease is None
        await until(lambda: not owner.desk._sharing.authority._models[MODEL].sold)


async def test_a_bound_of_the_queue_holds_over_all_gateways() -> None:
    """The declaration's number is that of all of them; each refuses in the words of one gateway alone."""
    async with several("a", "b") as s:
        await s.append(declaration(coldStart={"hold": {"maxRequests": 3}}))
        owner, (other,) = await warm(s)
        held = await leased(ask(s, owner, "0"))
        askers = [ask(s, (owner, other)[index % 2], f"{index}") for index in range(1, 7)]
        await until(lambda: sum(asker.refusal is not None for asker in askers) == 3)
        (refusal,) = {asker.refusal.message for asker in askers if asker.refusal is not None}
        assert "as many requests wait for this model as may, over all gateways" in refusal
        owner.desk.give_back(held, DONE)
        for asker in askers:
            if asker.refusal is None:
                holder = owner if asker.request in ("2", "4", "6") else other
                holder.desk.give_back(await leased(asker), DONE)


async def test_a_deadline_is_the_holders_own() -> None:
    """Who waits too long is refused where it waits, and its ticket is gone over there."""
    async with several("a", "b") as s:
        owner, (other,) = await warm(s)
        held = await leased(ask(s, owner, "1"))
        late = ask(s, other, "2", wait=0.2)
        await until(lambda: late.refusal is not None)
        assert late.refusal is not None
        assert late.refusal.code.value == "deadline_exceeded"
        await until(lambda: not owner.desk._sharing.authority._models[MODEL].tickets)
        owner.desk.give_back(held, DONE)


async def test_a_drained_replica_is_told_of_by_the_authority_at_its_last_lease() -> None:
    """Not by a gateway that has none of its leases."""
    async with several("a", "b") as s:
        _, (other,) = await warm(s)
        lease = await leased(ask(s, other, "1"))
        await s.observe(replica(0, slots=1, state=ReplicaState.DRAINING))

        async def drained() -> list[ReplicaDrained]:
            found = [record.envelope.data async for record in s.log.read(Query(Topic.PHASES))]
            return [it for it in found if isinstance(it, ReplicaDrained)]

        await asyncio.sleep(0.1)  # it would be told by now
        assert await drained() == []
        other.desk.give_back(lease, DONE)
        async with asyncio.timeout(10):
            while not await drained():  # noqa: ASYNC110 - it is written by the log's own task
                await asyncio.sleep(0.01)
        assert len(await drained()) == 1


async def test_an_authority_that_leaves_hands_over_what_it_knows() -> None:
    """Who waits elsewhere keeps its place, live leases stay sold, and nothing has to be counted; it takes no second."""
    async with several("a", "b", "c") as s:
        owner, (one, two) = await warm(s, slots=2)
        leases = [(one, await leased(ask(s, one, "1"))), (two, await leased(ask(s, two, "2")))]
        waiting = [(one, ask(s, one, "3")), (two, ask(s, two, "4")), (one, ask(s, one, "5"))]
        await until(lambda: len(owner.desk._sharing.authority._models[MODEL].tickets) == 3)
        before = s.clock.now()
        del s.gateways[owner.name]
        stopping = asyncio.create_task(owner.stop())
        successor = s.gateways[await s.until_agreed()]
        assert s.clock.now() - before < 1.0
        assert len(successor.desk._sharing.authority._models[MODEL].sold) == 2
        for gateway, lease in leases:
            gateway.desk.give_back(lease, DONE)
        for gateway, asker in waiting[:2]:
            gateway.desk.give_back(await leased(asker), DONE)
        waiting[2][0].desk.give_back(await leased(waiting[2][1]), DONE)
        await stopping


async def test_who_waits_at_a_gateway_that_leaves_gets_a_slot_of_those_that_stay() -> None:
    """So does who comes to it over a connection that it has; only when the last one leaves is it refused."""
    async with several("a", "b") as s:
        owner, (other,) = await warm(s, slots=1)
        lease = await leased(ask(s, other, "1"))
        before = ask(s, owner, "2")
        await until(lambda: len(owner.desk._sharing.authority._models[MODEL].tickets) == 1)
        owner.desk.shut_down()
        assert not owner.desk.ready
        after = ask(s, owner, "3")
        await until(lambda: len(other.desk._sharing.authority._models[MODEL].tickets) == 2)
        other.desk.give_back(lease, DONE)
        owner.desk.give_back(await leased(before), DONE)
        lease = await leased(after)
        waits = [ask(s, gateway, name) for gateway, name in ((owner, "4"), (other, "5"))]
        other.desk.shut_down()
        await until(lambda: all(asker.refusal is not None for asker in waits))
        owner.desk.give_back(lease, DONE)


async def test_under_load_over_http_slots_are_exact(caplog: pytest.LogCaptureFixture) -> None:
    """Forty clients at three gateways while the authority leaves and comes back: the engine never has too much."""
    caplog.set_level(logging.ERROR)
    async with simulated("--max-num-seqs", "3", "--time-to-first-token", "5ms") as engine, several("a", "b", "c") as s:
        await s.observe(served_by(engine, 0, 3))
        owner = s.gateways[await s.until_agreed()]
        stop = asyncio.Event()
        answers: list[int] = []

        async def client(session: aiohttp.ClientSession, name: str) -> None:
            while not stop.is_set():
                gateway = s.gateways.get(name)
                if gateway is None:
                    await asyncio.sleep(0.01)
                    continue
                body = {"model": MODEL, "prompt": "x", "max_tokens": 2}
                try:
                    async with session.post(f"{gateway.url}/v1/completions", json=body) as answer:
                        await answer.read()
                        answers.append(answer.status)
                except aiohttp.ClientError:
                    assert gateway is not s.gateways.get(name)  # it has left meanwhile

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            clients = [asyncio.create_task(client(session, "abc"[index % 3])) for index in range(40)]
            await until(lambda: len(answers) > 200)
            leaving = s.gateways.pop(owner.name)
            await leaving.stop()
            await until(lambda: len(answers) > 400)
            await s.start(owner.name)
            await s.until_agreed()
            count = len(answers)
            await until(lambda: len(answers) > count + 200)
            stop.set()
            await asyncio.gather(*clients)
        stats = await engine.stats()
        assert stats["oversold"] == stats["duplicates"] == 0
        assert stats["peak"] == 3
        assert set(answers) == {200}  # also those that the leaving gateway held
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# Who may come


async def test_gateways_need_the_same_secret(caplog: pytest.LogCaptureFixture) -> None:
    """With another one nobody shares anything, and both say why."""
    peers = replace(PEERS, secret=b"0123456789abcdef")
    async with several("a", "b", peers=peers) as s:
        await warm(s)
        stranger = await s.start("c", replace(PEERS, secret=b"another secret, quite"))
        await until(lambda: stranger.desk.peer_counts.unwelcome > 0)
        assert stranger.desk.sharing_counts.missing == 2
        assert "give all gateways the same secret file" in caplog.text


async def test_gateways_over_tls_with_certificates_of_both(tmp_path: Path) -> None:
    """Who shows no certificate of the authority is not listened to."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("gateway")
    contexts = []
    for side in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(side, cafile=authority.certificate)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate, key)
        contexts.append(context)
    peers = PeerSettings(address="127.0.0.1:0", server_tls=contexts[0], client_tls=contexts[1])
    async with several("a", "b", peers=peers) as s:
        _, (other,) = await warm(s)
        other.desk.give_back(await leased(ask(s, other, "1")), DONE)
        port = other.desk._peers._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line("hello", 1, 0, "x", "1", "0" * 32))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"a line is not JSON"),
        (line("hello", 2, 0, "x", "1", "0" * 32), b"it speaks version 2.0"),
        (line("ask", 1), b"has no place in a handshake"),
        (line("hello", 1, 0, "x", "1", "0" * 32) + line("proof", "wrong"), b"its proof of the shared secret is wrong"),
    ],
)
async def test_strangers_are_told_and_left(said: bytes, told: bytes) -> None:
    """A line in words, then the end."""
    async with several("a", peers=replace(PEERS, secret=b"0123456789abcdef")) as s:
        port = s.gateways["a"].desk._peers._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert b'["unwelcome"' in answer
        assert told in answer
        writer.close()


async def test_a_silent_stranger_is_left() -> None:
    """After the time of a handshake."""
    async with several("a") as s:
        port = s.gateways["a"].desk._peers._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_a_line_without_end_is_cut() -> None:
    """No memory is filled by whoever calls."""
    async with several("a") as s:
        port = s.gateways["a"].desk._peers._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * (64 << 20))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_gateways_without_an_address_and_with_our_name_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Each once, with what to do."""
    async with several("a") as s:
        await s.append(GatewayBeat(gateway="lonely", boot="1"), GatewayBeat(gateway="lonely", boot="1"))
        await until(lambda: "gateway lonely has or had no peer address" in caplog.text)
        assert caplog.text.count("gateway lonely") == 1
        await until(lambda: s.gateways["a"].desk._sharing.allegiance.view is not None)
        await s.append(GatewayBeat(gateway="a", boot="later", peer_address="127.0.0.1:1"))
        await until(lambda: "another process beats as gateway a" in caplog.text)


async def test_a_peer_port_that_is_taken_is_told() -> None:
    """By `start`."""
    async with several("a") as s:
        port = s.gateways["a"].desk._peers._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]  # it listens
        settings = DeskSettings(gateway=GatewayName("b"), boot="b")
        peers = PeerSettings(address=f"127.0.0.1:{port}", port=port)
        desk = SharedDesk(s.log, s.clock, EventWriter("relume/gateway/b", s.clock), settings, peers)
        with pytest.raises(OSError, match="address already in use"):
            await desk.start()
        await desk.close()


def test_a_refusal_of_a_newer_release_is_one_that_may_pass() -> None:
    """Codes that are not known yet."""
    assert Refusal(_code("something new"), "").code.value == "hold_queue_full"
