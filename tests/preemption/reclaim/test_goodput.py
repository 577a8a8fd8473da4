"""What a training job did with its cards: parts that add up exactly to what it held, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.grants import Placement
from events.types.shared import Resources
from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberGrant,
    MemberStatus,
    NoticeStatus,
    RunState,
    TrainingObserved,
)
from events.units import Instant
from preemption.core.lending.case import gpus_of
from preemption.core.reclaim.accounts import RECORD_EVERY, Accounts
from preemption.core.reclaim.goodput import Account, Part, gpu_seconds, read_account, see, share, summed

AT = 1_700_000_000.0


def run_of(run: int = 1, cards: int = 2, started: float = 0.0, **more: object) -> TrainingObserved:
    """A run on so many cards; times are seconds after AT."""
    members = (MemberStatus(member="tune-0", node="n", gpus=tuple(f"g{index}" for index in range(cards))),)
    whole: dict[str, object] = {"state": RunState.RUNNING, "members": members, "started_at": AT + started,
                                "reports": True}  # fmt: skip
    return TrainingObserved(job="tune", uid="u", revision=1, run=run, **(whole | more))  # type: ignore[arg-type]  # tests name real fields


def saved(step: int, at: float, seconds: float = 2.0) -> CheckpointStatus:
    return CheckpointStatus(step=step, at=AT + at, manifest="m", seconds=seconds, verified=True)


def told(*seen: tuple[float, TrainingObserved]) -> Account:
    account = Account(job="tune", uid="u")
    for at, one in seen:
        account = see(account, one, Instant(AT + at))
    return account


def seconds(account: Account, at: float) -> dict[str, float]:
    return gpu_seconds(account.parts(Instant(AT + at)))


@pytest.mark.parametrize(
    ("resources", "part"),
    [
        (Resources(gpus=1), 1.0), (Resources(gpu_fraction=0.25), 0.25), (Resources(mig_profile="1g.5gb"), 0.142),
        (Resources(mig_profile="3g.40gb"), 0.428), (Resources(mig_profile="2g.12gb"), 0.5),
        (Resources(mig_profile="7g.80gb"), 1.0),
    ],
)  # fmt: skip
def test_a_part_of_a_card_counts_as_its_part(resources: Resources, part: float) -> None:
    """Shares by what was asked for, MIG instances by their compute slices, in what was held and in what a reclaim
    cost."""
    members = (MemberStatus(member="tune-0", node="n", gpus=("g0", "g1"), resources=resources),)
    assert seconds(told((0, replace(run_of(), members=members))), 10)["restore"] == pytest.approx(20 * part)
    grant = MemberGrant(member="tune-0", resources=resources, placement=Placement(node="n", gpus=("g0", "g1")))
    assert gpus_of((grant,)) == pytest.approx(2 * part)


RUNS = run_of(resumed_step=0, step=0, step_at=AT + 5)
HEARD = NoticeStatus(id="r1", heard_at=AT + 40)


def test_a_run_that_yields_in_good_order() -> None:
    """Start-up, training, the wait of the ranks, the save that was asked for, the end, the wait for empty cards; on two
    cards each counts twice."""
    noticed = replace(RUNS, step=80, step_at=AT + 41, notice=HEARD)
    commit = replace(noticed, checkpoint=saved(80, 46, 4.0), notice=replace(HEARD, saved_step=80))
    end = replace(commit, state=RunState.ENDED, ending=Ending.SAVED, ended_at=AT + 47)
    account = told(
        (0, run_of()), (5, RUNS), (41, noticed), (46, commit), (47, end), (50, replace(end, empty_at=AT + 50))
    )
    assert seconds(account, 99) == {
        "kept": 72.0, "restore": 10.0, "save": 8.0, "barrier": 2.0, "stop": 2.0, "drain": 6.0,
    }  # fmt: skip
    assert share(account.parts(Instant(AT + 99))) == pytest.approx(0.72)


def test_what_no_checkpoint_has_goes_on_and_is_lost_with_the_run() -> None:
    """While the run lives it counts; a checkpoint keeps what was trained before its save, the end loses the rest."""
    kept = replace(RUNS, step=20, step_at=AT + 20, checkpoint=saved(20, 20))
    assert seconds(told((5, RUNS)), 15) == {"going": 20.0, "restore": 10.0}
    assert seconds(told((5, RUNS), (20, kept)), 30) == {"kept": 26.0, "going": 20.0, "restore": 10.0, "save": 4.0}
    end = replace(kept, state=RunState.ENDED, ending=Ending.FAILED, ended_at=AT + 30, empty_at=AT + 31)
    lost = {"kept": 26.0, "restore": 10.0, "since_commit": 20.0, "save": 4.0, "drain": 2.0}
    assert seconds(told((5, RUNS), (20, kept), (31, end)), 99) == lost
    done = replace(end, ending=Ending.FINISHED)
    assert seconds(told((5, RUNS), (20, kept), (31, done)), 99)["kept"] == 46.0


def test_a_save_beside_the_training_costs_nothing() -> None:
    """Steps beyond the checkpoint's were made while it was written: the cards trained on, and that is not kept yet."""
    beside = replace(RUNS, step=25, step_at=AT + 20, checkpoint=saved(20, 20, 5.0))
    assert seconds(told((5, RUNS), (20, beside)), 20) == {"kept": 20.0, "going": 10.0, "restore": 10.0}


def test_a_trainer_that_tells_nothing() -> None:
    """It trains from its start, as far as anybody knows, and keeps all of it or nothing."""
    silent = run_of(reports=False)
    assert seconds(told((0, silent)), 10) == {"going": 20.0}
    for ending, part in ((Ending.FINISHED, "kept"), (Ending.TOLD, "since_commit")):
        end = replace(silent, state=RunState.ENDED, ending=ending, ended_at=AT + 10, empty_at=AT + 10)
        assert seconds(told((0, silent), (10, end)), 99) == {part: 20.0}


def test_a_notice_that_was_withdrawn() -> None:
    """What was saved for it is kept, and the time until it went on is told apart; one that only heard it lost the time
    since."""
    commit = replace(RUNS, step=40, step_at=AT + 40, checkpoint=saved(40, 44, 3.0), notice=HEARD)
    on = replace(commit, notice=replace(HEARD, continued_at=AT + 50))
    assert seconds(told((5, RUNS), (44, commit), (50, on)), 60) == {
        "kept": 70.0, "going": 20.0, "restore": 10.0, "save": 6.0, "barrier": 2.0, "stop": 12.0,
    }  # fmt: skip
    only_heard = replace(RUNS, notice=HEARD)
    on = replace(RUNS, notice=replace(HEARD, continued_at=AT + 50))
    assert seconds(told((5, RUNS), (40, only_heard), (50, on)), 60) == {"going": 90.0, "restore": 10.0, "save": 20.0}


def test_a_run_that_comes_back_to_an_older_checkpoint() -> None:
    """What was kept beyond it is lost after all; from before all that is remembered, by its share of the steps."""
    one = replace(RUNS, step=10, step_at=AT + 10, checkpoint=saved(10, 10, 0.0))
    two = replace(RUNS, step=30, step_at=AT + 30, checkpoint=saved(30, 30, 0.0))
    end = replace(two, state=RunState.ENDED, ending=Ending.SAVED, ended_at=AT + 30, empty_at=AT + 30)
    for step, kept in ((30, 50.0), (10, 10.0), (5, 5.0), (0, 0.0)):
        back = run_of(
            2, started=40, resumed_step=step, step=step, step_at=AT + 40, checkpoint=saved(max(1, step), 41, 0.0)
        )
        account = told((5, RUNS), (10, one), (30, two), (30, end), (40, replace(back, checkpoint=None)))
        parts = seconds(account, 40)
        assert (parts.get("kept", 0.0), parts.get("since_commit", 0.0)) == (kept, 50.0 - kept)
        assert sum(parts.values()) == 60.0


def test_a_run_without_cards_has_no_goodput() -> None:
    """Nothing was held: unknown, not zero."""
    assert share(told((0, run_of(cards=0))).parts(Instant(AT + 9))) is None


@dataclass
class History:
    """A training job that lives through random things; it keeps count of what it held by itself."""

    now: int = 0
    held: int = 0
    cards: int = 0
    milli: int = 1000
    told: list[tuple[float, TrainingObserved]] = field(default_factory=list)
    seen: TrainingObserved | None = None
    step: int = 0

    def wait(self, millis: int) -> None:
        self.now += millis
        self.held += millis * self.cards * self.milli

    def say(self, **more: object) -> None:
        assert self.seen is not None
        self.seen = replace(self.seen, **more)  # type: ignore[arg-type]  # as above
        self.told.append((self.now / 1000, self.seen))

    @property
    def at(self) -> float:
        return AT + self.now / 1000

    def start(self, cards: int, fraction: float) -> None:
        run = 1 if self.seen is None else self.seen.run + 1
        self.cards, self.milli = cards, round(1000 * fraction) if fraction else 1000
        members = (MemberStatus(member="tune-0", node="n", gpus=tuple(f"g{index}" for index in range(cards)),
                                resources=Resources(gpu_fraction=fraction)),)  # fmt: skip
        last = None if self.seen is None else self.seen.checkpoint
        self.seen = run_of(run, started=self.now / 1000, reports=False, members=members, checkpoint=last)
        self.say()

    def resize(self, cards: int) -> None:
        assert self.seen is not None
        self.cards = cards
        gpus = tuple(f"g{index}" for index in range(cards))
        self.say(members=(replace(self.seen.members[0], gpus=gpus),))

    def resume(self, back: int) -> None:
        self.step = max(0, self.step - back)
        self.say(reports=True, resumed_step=self.step, step=self.step, step_at=self.at)

    def train(self, steps: int) -> None:
        self.step += steps
        self.say(reports=True, step=self.step, step_at=self.at)

    def commit(self, seconds: float, *, verified: bool) -> None:
        self.say(checkpoint=CheckpointStatus(step=self.step, at=self.at, seconds=seconds, verified=verified))

    def hear(self) -> None:
        self.say(notice=NoticeStatus(id=f"r{self.now}", heard_at=self.at))

    def go_on(self) -> None:
        assert self.seen is not None
        if self.seen.notice is not None:
            self.say(notice=replace(self.seen.notice, continued_at=self.at))

    def end(self, ending: Ending, drains: int) -> None:
        self.say(state=RunState.ENDED, ending=ending, ended_at=self.at)
        self.wait(drains)
        self.say(empty_at=self.at, members=())
        self.cards = 0


_ACTS = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 9)),
    st.tuples(st.just("commit"), st.floats(0, 9)),
    st.tuples(st.just("unproven"), st.floats(0, 9)),
    st.tuples(st.just("resize"), st.integers(1, 4)),
    st.tuples(st.sampled_from(("hear", "go_on")), st.just(0)),
    st.tuples(st.just("resume"), st.integers(0, 20)),
)

_RUNS = st.tuples(
    st.integers(0, 4), st.sampled_from((0.0, 0.25, 0.333)),
    st.lists(st.tuples(st.integers(0, 9000), _ACTS), max_size=8),
    st.sampled_from(list(Ending)), st.integers(0, 5000), st.integers(0, 5000),
)  # fmt: skip


def lived(history: History, runs: list[object], cut_at: int) -> None:
    """Live through the runs; the last one may be cut short."""
    for index, (cards, fraction, acts, ending, drains, idle) in enumerate(runs):  # type: ignore[misc]  # what _RUNS gives
        history.wait(idle)
        history.start(cards, fraction)
        for wait, (what, number) in acts:
            history.wait(wait)
            if what in ("commit", "unproven"):
                history.commit(number, verified=what == "commit")
            elif what == "resize":
                if cards:
                    history.resize(number)
            elif what in ("hear", "go_on"):
                getattr(history, what)()
            else:
                getattr(history, what)(number)
        if index < len(runs) - 1 or cut_at % 2:
            history.wait(drains)
            history.end(ending, drains)


@settings(deadline=None)
@given(st.lists(_RUNS, min_size=1, max_size=4), st.integers(0, 10_000), st.data())
def test_the_parts_are_the_whole(runs: list[object], after: int, data: st.DataObject) -> None:
    """For random lives of a job the parts add up to what it held, to the microsecond; also when it is accounted for
    from a record in the middle, and when states are told twice."""
    history = History()
    lived(history, runs, after)
    history.wait(after)
    now = Instant(AT + history.now / 1000)
    account, other = Account(job="tune", uid="u"), Account(job="tune", uid="u")
    for at, seen in history.told:
        account = see(account, seen, Instant(AT + at))
        other = see(read_account(see(other, seen, Instant(AT + at)).event()), seen, Instant(AT + at))
        assert all(amount >= 0 for amount in account.settled.values())
    assert sum(account.parts(now).values()) == history.held
    assert other.parts(now) == account.parts(now)
    # What is not seen costs knowledge, never exactness; only a change of the number of cards must be seen.
    kept = [(at, seen) for at, seen in history.told
            if seen.state is RunState.ENDED or not seen.reports or data.draw(st.booleans())]  # fmt: skip
    sizes = {(seen.run, len(seen.members[0].gpus)) for _, seen in history.told if seen.members}
    if len(sizes) == len({run for run, _ in sizes}):
        assert sum(told(*kept).parts(now).values()) == history.held


def test_several_accounts_together() -> None:
    """The pool's parts are the sums of its jobs'."""
    one = told((5, RUNS)).parts(Instant(AT + 15))
    assert summed([one, one])[Part.GOING] == 2 * one[Part.GOING]
    assert sum(summed([]).values()) == 0


def test_what_is_recorded_and_when() -> None:
    """Each stage of a run at once; checkpoints of one that goes on once a minute. A record in the log is gone on from,
    whichever is read first; a deleted job is forgotten once its cards are empty and that is recorded."""
    accounts = Accounts()
    accounts.see(run_of(), Instant(AT))
    (first,) = accounts.due(Instant(AT))
    assert (first.run, first.parts) == (1, {})
    accounts.see(RUNS, Instant(AT + 5))
    assert [one.open is not None and one.open.trained for one in accounts.due(Instant(AT + 5))] == [
        round(1000 * (AT + 5))
    ]
    for at in (10, 20, 80):
        accounts.see(replace(RUNS, step=at, step_at=AT + at, checkpoint=saved(at, at)), Instant(AT + at))
    assert accounts.due(Instant(AT + 20)) != []  # the first one
    accounts.see(replace(RUNS, step=81, step_at=AT + 81, checkpoint=saved(81, 81)), Instant(AT + 81))
    assert accounts.due(Instant(AT + 21)) == []
    (record,) = accounts.due(Instant(AT + 20 + RECORD_EVERY))
    newest = replace(RUNS, step=90, step_at=AT + 90, checkpoint=saved(90, 90))
    end = replace(newest, state=RunState.ENDED, ending=Ending.SAVED, ended_at=AT + 90, empty_at=AT + 90)
    for record_first in (True, False):
        other = Accounts()
        if record_first:
            other.stands(record, Instant(AT + 85))
        other.see(newest, Instant(AT + 90))
        if not record_first:
            other.stands(record, Instant(AT + 91))
        other.see(end, Instant(AT + 90))
        other.leave("tune")
        (last,) = other.due(Instant(AT + 90))
        assert sum(last.parts.values()) == 180_000_000
        assert len(other) == 0
