"""What another policy would have wished: replayed over what the log has of a model; of decisions that are older than
that, decided from each recorded situation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.output import replicas as count_of
from events.clock import SystemClock

if TYPE_CHECKING:
    from autoscaler.core.model import Snapshot
    from autoscaler.core.policy import ScalingPolicy
    from deploy.simulation.rerun import Rerun
    from events.envelope import AnyEnvelope

Item = Mapping[str, Any]
Row = dict[str, Any]
T = TypeVar("T")


AT_ONCE: Final = 1.0
"""Seconds. A replay decides as soon as an event was told; live that takes milliseconds, and until the next look. What
both wish within so long of each other is the same wish."""

_ONLY_SITUATIONS: Final = "only what each saw was decided anew, with the averages, signals and promises of then"
_FROM_SITUATIONS: Final = f"the log has nothing of its requests: {_ONLY_SITUATIONS}"
_AS_THEY_WERE: Final = (
    "demand and replicas are as they were: what other wishes would have changed of them is not in the log (relume tune "
    "simulates it)"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """`rows`: each recorded decision, and what it would be; `changes`: all that would have been wished in the replayed
    time. `notes`: what the reader must know to take them for what they are."""

    rows: list[Row]
    changes: list[Row]
    seconds: tuple[float, float] | None
    """Replica-seconds that were wished in the replayed time, and would be."""
    notes: list[str]


def what_if(connection: Connection, items: Sequence[Item], file: Path, until: float | None) -> Answer:
    """`items`: the recorded decisions, oldest first. `until`: nothing later is looked at; None: all."""
    readable = [item for item in items if _read(item) is not None]
    given = _given(file)
    if not readable:
        return Answer([], [], None, [])
    newest = _read(readable[-1])
    assert newest is not None
    policy = _instead(file, given, newest)
    uid = str(readable[-1]["snapshot"].get("uid", ""))
    end = float(SystemClock().now()) if until is None else until
    events = _events(connection, readable)
    old, rest = _parted(readable, events, uid)
    rows = _situations(old, file, given)
    if not rest:
        return Answer(rows, [], None, [_FROM_SITUATIONS])
    replayed = _replayed(events, rest, policy, end)
    rows += [_row(item, replayed) for item in rest]
    decisions = "1 decision is" if len(old) == 1 else f"{len(old)} decisions are"
    notes = [f"{decisions} older than what the log has of requests: {_ONLY_SITUATIONS}"] if old else []
    return Answer(rows, _changes(replayed), _seconds(rest, replayed, end), [*notes, _AS_THEY_WERE])


def sentences(answer: Answer) -> list[str]:
    """A line each time that one of the two changes while they differ, what both took in all, and how many decisions
    differ."""
    differ = sum(row["replicas"] != row["wouldBe"] for row in answer.rows)
    lines = [*_lines(answer)]
    if answer.seconds is not None:
        was, would = (f"{seconds:.0f}" for seconds in answer.seconds)
        lines.append(f"In the time that was replayed {was} replica-seconds were wished, and {would} would be.")
    lines += [f"({note}.)" for note in answer.notes]
    return [*lines, f"{differ} of {len(answer.rows)} decisions would be another number."]


def _lines(answer: Answer) -> list[str]:
    """Recorded decisions and wishes that would be, by time; those in which both are the same are left out, but for
    where they meet again, and so are differences that are over at once."""
    steps = list(_steps(answer))
    lines, differed = [], False
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if after is not None and after.at < step.at + AT_ONCE:
            continue
        if step.differs or differed:
            lines.append(step.words)
        differed = step.differs
    return lines


@dataclass(frozen=True, slots=True)
class _Step:
    """One of the two changes."""

    at: float
    differs: bool
    words: str


def _steps(answer: Answer) -> Iterator[_Step]:
    was = 0
    for row in sorted([*answer.rows, *answer.changes], key=_time):
        if "wouldBe" in row:
            was, would, why = row["replicas"], row["wouldBe"], row["wouldBeReasons"]
            stood = f"{count_of(was)} ({', '.join(row['reasons'])})"
        else:
            would, why, stood = row["replicas"], row["reasons"], f"still {count_of(was)}"
        yield _Step(_time(row), was != would, f"{row['time']}  {stood}; would be {would} ({', '.join(why)})")


def _parted(items: Sequence[Item], events: Sequence[AnyEnvelope], uid: str) -> tuple[Sequence[Item], Sequence[Item]]:
    """Decisions from before what the log has of this declaration's demand, and those since: as long as nobody is on
    record to have asked, the log need have nothing."""
    from deploy.simulation.rerun import first_window  # noqa: PLC0415 - as below

    asked = first_window(events, uid)
    mine = [item for item in items if item["snapshot"].get("uid") == uid]
    if any(_demanded(item) and (asked is None or _time(item) < asked) for item in mine):
        mine = [item for item in mine if asked is not None and _time(item) >= asked]
    return items[: len(items) - len(mine)], mine


def _demanded(item: Item) -> bool:
    """Whether anything was asked for when this was decided."""
    demand = _snapshot(item).demand
    return bool(demand.running or demand.waiting or demand.stable or demand.signal)


def _replayed(events: Sequence[AnyEnvelope], items: Sequence[Item], policy: ScalingPolicy, end: float) -> Rerun:
    from autoscaler.own import OwnPolicyFailed  # noqa: PLC0415 - as below
    from deploy.simulation.rerun import Of, rerun  # noqa: PLC0415 - as below
    from events.units import Instant  # noqa: PLC0415 - as below

    first = _snapshot(items[0])
    of = Of(first.model, first.uid, Instant(first.taken_at), Instant(end))
    try:
        with redirect_stdout(sys.stderr):  # what one's own policy prints
            return rerun(events, of, policy)
    except OwnPolicyFailed as error:
        raise Refused(f"policy {error}", remedy="mend the function") from error


def _events(connection: Connection, items: Sequence[Item]) -> list[AnyEnvelope]:
    """All that the log has of the model since its first decision on record, and what it can be made of."""
    from deploy.simulation.rerun import TOPICS  # noqa: PLC0415 - as below
    from events.codec import decode_structured  # noqa: PLC0415 - as below
    from events.envelope import Envelope  # noqa: PLC0415 - as below

    found = []
    for topic in TOPICS:
        query = {"topic": topic, "model": items[0]["model"], "from": items[0]["time"], "follow": False}
        for line in connection.lines("/v1alpha1/events", query):
            read = decode_structured(line)
            if isinstance(read, Envelope):
                found.append(read)
    return found


def _row(item: Item, replayed: Rerun) -> Row:
    at = _time(item)
    would = next((one for one in replayed.about(at, AT_ONCE) if one.replicas == item["replicas"]), replayed.at(at))
    return {
        "time": item["time"], "replicas": item["replicas"], "reasons": item["reasons"],
        "wouldBe": 0 if would is None else would.replicas,
        "wouldBeReasons": [] if would is None else [reason.value for reason in would.reasons],
    }  # fmt: skip


def _changes(replayed: Rerun) -> list[Row]:
    from events.units import format_instant  # noqa: PLC0415 - as below

    return [
        {"time": format_instant(one.at), "replicas": one.replicas, "reasons": [reason.value for reason in one.reasons]}
        for one in replayed.wishes
    ]


def _seconds(items: Sequence[Item], replayed: Rerun, end: float) -> tuple[float, float]:
    times = [*(_time(item) for item in items), end]
    spans = zip(items, times, times[1:], strict=False)
    return sum(item["replicas"] * max(0.0, after - at) for item, at, after in spans), replayed.replica_seconds(end)


def _situations(items: Sequence[Item], file: Path, given: Mapping[str, Any]) -> list[Row]:
    """Each recorded situation, decided by what `file` says instead: each sees what was seen then (demand, replicas,
    signals), and goes on from what it would have wished and remembered itself."""
    from autoscaler.core.decide import decide  # noqa: PLC0415 - takes a fifth of a second to import
    from autoscaler.core.model import Memory  # noqa: PLC0415 - as above
    from autoscaler.core.view import Scheduled  # noqa: PLC0415 - as above
    from autoscaler.own import OwnPolicyFailed, own_policy  # noqa: PLC0415 - as above
    from autoscaler.schedules import schedules_of  # noqa: PLC0415 - as above
    from events.units import Instant  # noqa: PLC0415 - as above

    rows: list[Row] = []
    memory, wished = Memory(), None
    for item in items:
        snapshot, was = _snapshot(item), _read(item)
        assert was is not None
        policy = _instead(file, given, was)
        seen = snapshot if not rows else replace(snapshot, memory=memory, wished=wished)
        seen = replace(seen, memory=Memory()) if not rows and policy.name != was.name else seen
        if policy.schedules != was.schedules:
            schedule = schedules_of(policy.schedules)
            wants = Scheduled() if schedule is None else schedule(Instant(snapshot.taken_at))
            seen = replace(seen, scheduled=wants.replicas, schedule_changes_at=wants.changes_at)
        try:
            with redirect_stdout(sys.stderr):  # what one's own policy prints
                decision = decide(seen, policy, Instant(snapshot.taken_at), own_policy(policy.name))
        except OwnPolicyFailed as error:
            raise Refused(f"policy {error}", remedy="mend the function") from error
        memory, wished = decision.memory, decision.replicas
        rows.append({
            "time": item["time"], "replicas": item["replicas"], "reasons": item["reasons"],
            "wouldBe": decision.replicas, "wouldBeReasons": [reason.value for reason in decision.reasons],
        })  # fmt: skip
    return rows


def _time(item: Item) -> float:
    return datetime.fromisoformat(item["time"]).timestamp()


def _snapshot(item: Item) -> Snapshot:
    from autoscaler.codec import read_snapshot  # noqa: PLC0415 - as above

    return read_snapshot(item["snapshot"])


def _read(item: Item) -> ScalingPolicy | None:
    """The policy of a decision; None: its record cannot be read, it is of another release."""
    from autoscaler.codec import read_policy  # noqa: PLC0415 - as above

    try:
        _snapshot(item)
        return read_policy(item["policy"])
    except ValueError:
        return None


def _instead(file: Path, given: Mapping[str, Any], was: ScalingPolicy) -> ScalingPolicy:
    """The policy that a file gives, for the model whose policy was this: what a whole document says beside its scaling
    (slots, priority, slo, resources, sleep) counts too, and what it leaves out is as it was."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    from autoscaler.core.policy import by_pool  # noqa: PLC0415 - as above
    from autoscaler.declared import gpus_taken  # noqa: PLC0415 - as above
    from autoscaler.slo_spec import SloSlice, promising  # noqa: PLC0415 - as above
    from autoscaler.spec import ScalingSpec  # noqa: PLC0415 - as above
    from preemption.spec import Priority  # noqa: PLC0415 - as above
    from runtime.spec import Slots  # noqa: PLC0415 - as above

    scaling, spec = given["scaling"], given["spec"]
    _check(file, {"slots": was.slots, **spec, "scaling": scaling})

    def part(name: str, read: Callable[[Any], T], before: T) -> T:
        return _part(file, name, lambda: read(spec[name])) if name in spec else before

    whole: Mapping[str, TypeAdapter[int]] = {"slots": TypeAdapter(Slots), "priority": TypeAdapter(Priority)}
    slots = part("slots", lambda told: whole["slots"].validate_python(told, strict=True), was.slots)
    priority = part("priority", lambda told: whole["priority"].validate_python(told, strict=True), was.priority)
    resolved = _part(file, "", lambda: ScalingSpec.model_validate(scaling).resolve(slots=slots, priority=priority))
    objectives = part("slo", lambda told: SloSlice.model_validate(told).objectives(), was.objectives)
    gpus = part("resources", gpus_taken, was.gpus)
    sleeps = part("coldStart", lambda told: "sleep" in told, was.sleeps)
    resolved = by_pool(replace(resolved, gpus=gpus, sleeps=sleeps), was.pool_cost)
    return promising(resolved, objectives, target_given="target" in scaling)


def _check(file: Path, spec: Mapping[str, Any]) -> None:
    """Refuse what no model could declare, each field with its value, its rule and what to write instead."""
    from deploy.spec.check import check  # noqa: PLC0415 - as above
    from deploy.spec.document import API_VERSION  # noqa: PLC0415 - as above
    from deploy.spec.problem import SpecRefused  # noqa: PLC0415 - as above

    whole = {"engine": {"type": "simulated"}, **spec}
    try:
        check({"apiVersion": API_VERSION, "kind": "Model", "metadata": {"name": "m"}, "spec": whole}, None)
    except SpecRefused as refused:
        said = "\n".join(str(problem) for problem in refused.problems)
        raise Refused(f"{file} is nothing that a model could declare", why=said) from None


def _part(file: Path, name: str, read: Callable[[], T]) -> T:
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    try:
        return read()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join([name] * bool(name) + [str(part) for part in first["loc"]]) or "scaling"
        raise Refused(f"{file}: {where}: {first['msg']}", remedy="see docs/reference/model.md") from error
    except (ValueError, TypeError, ArithmeticError) as error:
        raise Refused(f"{file}: {name or 'scaling'}: {error}", remedy="see docs/reference/model.md") from error


def _given(file: Path) -> dict[str, dict[str, Any]]:
    """`scaling`: a model's `spec.scaling`, of a whole document, of its `scaling:` alone, or bare. `spec`: what a whole
    document says."""
    read = _document(file)
    spec: dict[str, Any] = {}
    if isinstance(read, dict) and isinstance(read.get("spec"), dict):
        spec = read = read["spec"]
    if isinstance(read, dict) and isinstance(read.get("scaling"), dict):
        read = read["scaling"]
    elif spec:
        read = {}
    if not isinstance(read, dict):
        raise Refused(f"{file} has no mapping", remedy="write such as: policy: kpa")
    return {"scaling": read, "spec": spec}


def _document(file: Path) -> Any:
    """The one document of a file."""
    from deploy.spec.tree import read_trees  # noqa: PLC0415 - as above

    try:
        trees, problems = read_trees(file.read_bytes(), str(file))
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error
    problems += [problem for tree in trees for problem in tree.problems]
    if problems:
        raise Refused(str(problems[0]))
    if len(trees) > 1:
        raise Refused(f"{file} has {len(trees)} documents", remedy="leave the one that is meant")
    read = trees[0].value if trees else None
    if isinstance(read, dict) and read.get("kind", "Model") != "Model":
        raise Refused(f"{file}: kind: {read['kind']!r} is no Model", remedy="give a Model, or its scaling alone")
    return read
