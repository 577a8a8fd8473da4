"""Random lives of a desk on a log in memory and a simulated clock."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.replicas import ReplicaState
from runtime.ports import Ending, Lease, Outcome
from tests.support.desk import Asker, World, declaration, world
from tests.support.slots import DONE, replica

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 2)),
        st.tuples(st.just("burst"), st.integers(2, 30)),
        st.tuples(st.just("leave"), st.integers(0, 50)),
        st.tuples(st.just("give back"), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("replicas"), st.integers(0, 3)),
        st.tuples(st.just("drain"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
    ),
    max_size=40,
)
SLOTS = 2
CANCELLED = Outcome(Ending.CLIENT_LEFT, engine_done=False)


class Life:
    """Plays the gateway and the adapter, and keeps count."""

    def __init__(self, one: World) -> None:
        self.one = one
        self.askers: list[Asker] = []
        self.gone: set[str] = set()
        self.ended: set[str] = set()
        self.served: list[str] = []
        self.uid = 1
        self.lives = 0
        self.present: dict[int, tuple[int, str]] = {}
        """The life and the uid of each replica that is there, by index."""
        self.placed: dict[str, tuple[str, int]] = {}
        """The replica and its life that each request was leased on."""

    def ask(self, caller: str) -> None:
        asker = Asker(f"{caller}/{len(self.askers)}", self.served, self.place)
        self.askers.append(asker)
        lease = self.one.desk.take(self.one.wanted(asker.request, caller=caller, wait=30.0), asker)
        if lease is not None:
            asker.leased(lease)

    async def step(self, what: str, number: int) -> None:
        one = self.one
        match what:
            case "ask":
                self.ask(str(number % 3))
            case "burst":
                for _ in range(number):
                    self.ask(str(number % 3))
            case "leave":
                self.leave(number)
            case "give back" | "cancel":
                outcome = DONE if what == "give back" else CANCELLED
                for asker in self.live()[number : number + 1]:
                    self.give_back(asker, outcome)
            case "replicas" | "drain":
                await self.observe(number, ReplicaState.READY if what == "replicas" else ReplicaState.DRAINING)
            case "delete":
                await one.append(declaration(uid=f"u{self.uid}", deleted=True))
                self.uid += 1
                await one.append(declaration(uid=f"u{self.uid}"))
            case "wait":
                await one.clock.advance(number)

    async def observe(self, count: int, state: ReplicaState) -> None:
        for index in range(count):
            if index not in self.present:
                self.lives += 1
                self.present[index] = (self.lives, f"u{self.uid}")
        self.present = {index: self.present[index] for index in range(count)}
        await self.one.observe(
            *(
                replica(index, slots=SLOTS, state=state, uid=uid, life=life)
                for index, (life, uid) in self.present.items()
            )
        )

    def place(self, lease: Lease) -> None:
        life, uid = self.present[int(lease.replica[-1])]
        assert uid == f"u{self.uid}", "leased a replica of another uid"
        self.placed[lease.request] = (lease.replica, life)

    def leave(self, number: int) -> None:
        waiting = [asker for asker in self.askers if self.waits(asker)]
        for asker in waiting[number : number + 1]:
            self.gone.add(asker.request)
            self.one.desk.leave(asker.request)

    def waits(self, asker: Asker) -> bool:
        return asker.lease is None and asker.refusal is None and asker.request not in self.gone

    def live(self) -> list[Asker]:
        return [asker for asker in self.askers if asker.lease is not None and asker.request not in self.ended]

    def give_back(self, asker: Asker, outcome: Outcome) -> None:
        assert asker.lease is not None
        self.ended.add(asker.request)
        self.one.desk.give_back(asker.lease, outcome)

    def check(self) -> None:
        by_replica = Counter(self.placed[asker.request] for asker in self.live())
        assert self.one.desk.running == len(self.live())
        held = sum(status.held for status in self.one.desk.statuses())
        assert held == sum(self.waits(asker) for asker in self.askers)
        for caller in "012":
            own = [int(name.split("/")[1]) for name in self.served if name.startswith(caller)]
            assert own == sorted(own), "not in the order of its caller"
        assert all(count <= SLOTS for count in by_replica.values())
        for asker in self.askers:
            if asker.request in self.gone:
                assert asker.lease is None
                assert asker.refusal is None

    async def end(self) -> None:
        """All give back, the rest run into their deadlines: nothing is left."""
        self.one.desk.shut_down()
        for asker in self.live():
            self.give_back(asker, DONE)
        await self.one.clock.advance(40)
        assert not any(self.waits(asker) for asker in self.askers)
        assert self.one.desk.running == 0
        assert self.one.desk._waiters == {}
        assert self.one.desk._alarm is None or self.one.desk._authority.due() is not None


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_every_request_gets_one_answer_in_order(steps: list[tuple[str, int]]) -> None:
    """A lease, a refusal, or nothing because it left; first come first served within a caller; nothing left over."""

    async def live() -> None:
        async with world() as one:
            life = Life(one)
            for what, number in steps:
                await life.step(what, number)
                life.check()
            await life.end()

    asyncio.run(live())
