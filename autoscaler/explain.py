"""Why a number of replicas was decided, in sentences with the numbers, from the records alone. Pure.

Every sentence about the decision is made of what the decision itself saw (its snapshot, its policy, its memory); what
came of it is made of the grant and of the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from autoscaler.codec import read_memory, read_policy, read_snapshot
from autoscaler.core.capacity import bearable, token_floor
from autoscaler.core.forecast.following import outlook
from autoscaler.core.forecast.hold import LEVELS
from autoscaler.core.model import Memory, Reason, Snapshot
from autoscaler.core.peers import IdleMemory, KpaMemory
from autoscaler.core.policy import Mode, ScalingPolicy, extra_kept_for
from autoscaler.core.tiering import held, rungs_of, then, warm_now
from autoscaler.need_words import Need
from autoscaler.outcome import after_sentences, outcome_facts
from autoscaler.peer_words import by_idle_times, knative_panics
from autoscaler.signal_words import replicas_of, signal_sentences, strongest, unknown
from autoscaler.slo_words import slo_sentences
from autoscaler.tier_words import tier_sentences
from autoscaler.words import clock_time, number, percent, replicas, requests, span, times
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved
from events.units import Instant, format_instant

OURS: Final = "relume"
"""The policy whose numbers are known here; others size by rules of their own."""


@dataclass(frozen=True, slots=True)
class Records:
    """The newest records about a model, or those of a time that is past. Those of another uid than the wish's are
    void."""

    wish: WishDecided
    grant: GrantDecided | None = None
    observed: ReplicasObserved | None = None
    declared: ModelDeclared | None = None
    past: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision for people and for programs."""

    sentences: tuple[str, ...]
    facts: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a sentence may speak of: what the decision saw, its numbers, its answer and what it remembers."""

    snapshot: Snapshot
    policy: ScalingPolicy
    memory: Memory
    replicas: int
    need: Need

    @property
    def level(self) -> int:
        return self.need.level

    def clock(self, instant: float) -> str:
        """With its date where the decision was taken on another day."""
        return clock_time(instant, self.snapshot.taken_at)


def explain(records: Records) -> Explanation:
    """The last decision about a model and what came of it. ValueError when the wish cannot be read."""
    wish = records.wish
    decided = explain_decision(wish)
    grant = records.grant if records.grant is not None and records.grant.uid == wish.uid else None
    observed = records.observed if records.observed is not None and records.observed.uid == wish.uid else None
    declared = records.declared if records.declared is not None and records.declared.uid == wish.uid else None
    return Explanation(
        (*decided.sentences, *after_sentences(wish, grant, observed, declared, now=not records.past)),
        {**decided.facts, **outcome_facts(grant, observed, declared)},
    )


def explain_decision(wish: WishDecided) -> Explanation:
    """A decision alone, whenever it was taken. ValueError when the wish cannot be read."""
    policy, memory = read_policy(wish.policy), read_memory(wish.memory)
    snapshot, borne = read_snapshot(wish.snapshot), bearable(policy, memory.capacity)
    ours = policy.name == OURS or Reason.POLICY_REPLACED in wish.reasons
    told = _Told(snapshot, borne, memory, wish.replicas, Need(snapshot, borne, ours=ours))
    weighed = _weighed(told, ours=ours)
    reasons = [(reason, reason_sentence(reason, weighed)) for reason in wish.reasons]
    sentences = (
        _demand_sentence(told),
        _replicas_sentence(told),
        *signal_sentences(told.snapshot, told.policy),
        *slo_sentences(told.snapshot, policy, memory),
        *tier_sentences(policy, memory, weighed.replicas),
        *(text for _, text in reasons),
        _answer_sentence(told),
    )
    facts: dict[str, JsonValue] = {
        "model": wish.model,
        "uid": wish.uid,
        "revision": wish.revision,
        "decidedAt": format_instant(told.snapshot.taken_at),
        "replicas": wish.replicas,
        "replicasBefore": told.snapshot.wished,
        "reasons": [{"reason": reason, "text": text} for reason, text in reasons],
        "snapshot": wish.snapshot,
        "policy": wish.policy,
        "memory": wish.memory,
    }
    return Explanation(sentences, facts)


def _weighed(told: _Told, *, ours: bool) -> _Told:
    """What the policy weighed. In the mode `recommend` it went on from what it recommended before, whatever stood."""
    would = told.memory.recommended
    if told.policy.mode is not Mode.RECOMMEND or would is None:
        return told
    before = told.snapshot.memory.recommended
    snapshot = told.snapshot if before is None else replace(told.snapshot, wished=before)
    return replace(told, snapshot=snapshot, replicas=would, need=Need(snapshot, told.policy, ours=ours))


def reason_sentence(reason: str, told: _Told) -> str:
    """The sentence of one reason; one that a newer release wrote is named."""
    template = SENTENCES.get(reason)
    return f"A reason that this release does not know: {reason}." if template is None else template(told)


def _demand_sentence(told: _Told) -> str:
    demand, policy = told.snapshot.demand, told.policy
    text = f"At {told.clock(told.snapshot.taken_at)} demand was {demand.running} running and {demand.waiting} waiting"
    if demand.oldest_waiting is not None:
        text += f", the oldest for {span(demand.oldest_waiting)}"
    stable, panic = demand.stable, demand.panic
    if stable is None:
        return f"{text}; its average over the last {span(policy.stable_window)} was not known."
    text += f"; on average {number(stable)} over the last {span(policy.stable_window)}"
    if panic is not None:
        text += f" and {number(panic)} over the last {span(policy.panic_window)}"
    return text + "."


def _replicas_sentence(told: _Told) -> str:
    have = told.snapshot.replicas
    text = f"{replicas(have.ready)} {'was' if have.ready == 1 else 'were'} ready and {have.starting} starting"
    if have.ready_in is not None:
        text += f" (the first ready in about {span(have.ready_in)})"
    if have.draining:
        text += f", {have.draining} draining"
    before = told.snapshot.wished
    return text + ("; nothing had been asked for before." if before is None else f"; {before} had been asked for.")


def _answer_sentence(told: _Told) -> str:
    before = told.snapshot.wished
    still = "still " if before == told.replicas else ""
    return f"So it {still}asked for {replicas(told.replicas)}."


def _activation(told: _Told) -> str:
    return f"{requests(told.level)} asked for the model and no replica was ready: it had to wake."


def _backlog(told: _Told) -> str:
    return told.need.backlog()


def _load(told: _Told) -> str:
    return told.need.load()


def _requested(told: _Told) -> str:
    until = told.memory.floor_until
    end = "" if until is None else f" until {told.clock(until)}"
    if until is not None and told.memory.floor_open:
        end = f" until they are ready and for {span(told.policy.keep_alive)} after, or until {told.clock(until)}"
    return f"Somebody asked that at least {replicas(told.memory.floor)} be awake{end}."


def _signal(told: _Told) -> str:
    demand, most = told.snapshot.demand, strongest(told.snapshot)
    text = f"Numbers from outside need {replicas_of(demand.signal)}"
    if most:
        text += f", {most} the most"
    if demand.signal_recent > demand.signal:
        recent = number(demand.signal_recent)
        text += f"; in the last {span(told.policy.stable_window)} they needed up to {recent}, so nothing is taken away"
    return text + "."


def _panic(told: _Told) -> str:
    peer = told.memory.peer
    if isinstance(peer, KpaMemory):
        return knative_panics(told.policy, peer, told.snapshot.replicas.ready, told.clock)
    have = told.snapshot.replicas.ready + told.snapshot.replicas.starting
    until = told.memory.panic_until
    end = "" if until is None else f" before {told.clock(until)}"
    return (
        f"Demand is, or was in the last {span(told.policy.stable_window)}, at least twice what was ready or starting "
        f"({replicas(have)} now): while anybody asks, nothing is taken away{end}."
    )


def _starts_fail(told: _Told) -> str:
    retry_at = told.snapshot.retry_at
    when = "" if retry_at is None else f", next at {told.clock(retry_at)}"
    besides = ", but for the least that must be there" if told.replicas > told.need.before else ""
    return f"The start failed {times(told.snapshot.failures)}: no more are asked for until one succeeds{when}{besides}."


def _history_unread(_: _Told) -> str:
    return "Past demand had not been read back yet: nothing is taken away before."


def _demand_unknown(told: _Told) -> str:
    demand = told.snapshot.demand
    if demand.silent:
        quiet = "" if demand.age is None else f" {span(demand.age)} ago"
        who = "1 gateway" if demand.silent == 1 else f"{demand.silent} gateways"
        return (
            f"{who} fell silent{quiet} with requests in flight: what is unknown is not zero, so nothing is taken away."
        )
    since = told.snapshot.followed_since
    if demand.coverage >= 1.0 and since is not None:
        return f"Demand is known only since {told.clock(since)}: nothing is taken away."
    part = f"{demand.coverage * 100:.0f} %"
    return f"Only {part} of the demand of the last {span(told.policy.stable_window)} is known: nothing is taken away."


def _signal_stale(told: _Told) -> str:
    stale, names = told.snapshot.demand.stale_signals, ", ".join(unknown(told.snapshot))
    which = f" ({names})" if names else ""
    verb = "is" if stale == 1 else "are"
    return f"{stale} of the numbers from outside{which} {verb} not known, which is not zero: nothing is taken away."


def _steady(told: _Told) -> str:
    return told.need.steady(told.replicas)


def _keep_alive(told: _Told) -> str:
    last = told.memory.last_busy_at
    if not told.need.ours and told.policy.name != "keepalive":
        return f"What is not needed now is kept by the rule of {told.policy.name}."
    if told.policy.cold_start_cost is not None:
        return "Nobody asks; what was needed lives on to the end of the minute, and then by its forecast."
    kept = told.memory.kept
    life, extra = told.policy.keep_alive, extra_kept_for(told.policy)
    if kept and (extra == life or kept[0].amount > 1.0):
        most = int(kept[0].amount)
        until = told.clock(kept[0].at + extra)
        verb = "was" if most == 1 else "were"
        return (
            f"{replicas(most)} {verb} needed at {told.clock(kept[0].at)}, and what was needed lives on until {until}."
        )
    if last is None:
        return f"Nobody asks; what is idle lives on for {span(life)}."
    since, until = told.clock(last), told.clock(last + life)
    return f"Nobody has asked since {since}; what is idle lives on for {span(life)}, until {until}."


def _forecast(told: _Told) -> str:
    peer, forecast, rungs = told.memory.peer, told.memory.forecast, rungs_of(told.policy, told.memory.starts)
    if isinstance(peer, IdleMemory):
        return by_idle_times(peer, told.replicas, told.clock)
    if forecast is None or rungs is None:
        return "A forecast asked for it."
    past, when, start, begins = forecast.past, f"until {told.clock(forecast.ends_at)}", told.snapshot.start_seconds, ""
    worth = warm_now(forecast, rungs, start, Instant(told.snapshot.taken_at))
    if start is not None and worth > held(past, rungs).warm:
        past, when = then(forecast), f"in the minute from {told.clock(forecast.ends_at)}"
        begins = f", and since a start takes {span(start)} it begins now"
    most = f", and maxReplicas is {told.policy.max_replicas}" if worth > told.policy.max_replicas else ""
    known = ", ".join(
        f"{percent(chance)} for {replicas(level)}"
        for level, chance in zip(LEVELS[:3], outlook(past).chances(), strict=False)
    )
    verb = "is" if worth == 1 else "are"
    return f"The chance of being needed {when} is {known}: {replicas(worth)} {verb} worth holding{begins}{most}."


def _descent(told: _Told) -> str:
    return told.need.descent()


def _step_limit(told: _Told) -> str:
    return f"No more than half of {told.need.before} go at once: {told.replicas} stay for now."


def _idle(told: _Told) -> str:
    last = told.memory.last_busy_at
    if last is None:
        return "Nobody asks."
    if not told.need.ours and told.policy.name != "keepalive":
        return f"Nobody has asked since {told.clock(last)}: so by the rule of {told.policy.name}."
    if told.policy.cold_start_cost is not None:
        return f"Nobody has asked since {told.clock(last)}, and no replica is worth holding by its forecast."
    return f"Nobody has asked since {told.clock(last)}; the keep-alive is {span(told.policy.keep_alive)}."


def _at_least_min(told: _Told) -> str:
    return f"minReplicas keeps it at {told.policy.min_replicas} or more."


def _at_most_max(told: _Told) -> str:
    return f"maxReplicas keeps it at {told.policy.max_replicas} or fewer."


def _deleted(told: _Told) -> str:
    return f"{told.snapshot.model} is no longer declared."


def _policy_unknown(told: _Told) -> str:
    return f"There is no policy named {told.policy.name}: the last wish stands."


def _policy_failed(told: _Told) -> str:
    wakes = told.replicas > (told.snapshot.wished or 0)
    then = "who waits wakes the model all the same" if wakes else "the last wish stands"
    return f"The policy {told.policy.name} failed with an error, which stands in the autoscaler's own log: {then}."


def _slo_burn(told: _Told) -> str:
    until = told.memory.burn_until
    end = "" if until is None else f" until {told.clock(until)}"
    least = replicas(told.memory.burn_floor)
    return f"Answers came later than promised or were refused, too many of them: at least {least}{end}."


def _failing(_: _Told) -> str:
    return (
        "More answers fail than the promised availability can bear. More replicas of what is broken are as broken, so "
        "nothing is added for it."
    )


def _capacity(told: _Told) -> str:
    seen, known = told.snapshot.served, told.memory.capacity
    if seen is None or known is None or seen.tokens is None or known.tokens is None:
        return "The tokens made now are more than fewer replicas were learned to make as promised."
    needs = token_floor(known, seen, Instant(told.snapshot.taken_at))
    return (
        f"{number(seen.ready * seen.tokens)} tokens a second are made, and a replica was learned to make "
        f"{number(known.tokens)} as promised: that needs {replicas(needs)}."
    )


def _scheduled(told: _Told) -> str:
    until = told.snapshot.schedule_changes_at
    end = "" if until is None else f", until {told.clock(until)} at the earliest"
    return f"A schedule wants at least {replicas(told.snapshot.scheduled)}{end}."


def _policy_replaced(told: _Told) -> str:
    return f"The policy {told.policy.name} failed again and again, so relume decides until the model is applied anew."


def _own_policy(told: _Told) -> str:
    return f"The policy {told.policy.name} said so."


def _recommended(told: _Told) -> str:
    would = told.memory.recommended
    said = "" if would is None else f": it would have asked for {replicas(would)}"
    return f"The model's mode is recommend, so nothing is changed{said}."


def _paused(_: _Told) -> str:
    return "The model's mode is paused, so nothing is decided and what was asked for stands."


SENTENCES: Final[Mapping[str, Callable[[_Told], str]]] = {
    Reason.ACTIVATION: _activation,
    Reason.BACKLOG: _backlog,
    Reason.LOAD: _load,
    Reason.REQUESTED: _requested,
    Reason.SIGNAL: _signal,
    Reason.FORECAST: _forecast,
    Reason.FAILING: _failing,
    Reason.CAPACITY: _capacity,
    Reason.PANIC: _panic,
    Reason.STARTS_FAIL: _starts_fail,
    Reason.HISTORY_UNREAD: _history_unread,
    Reason.DEMAND_UNKNOWN: _demand_unknown,
    Reason.SIGNAL_STALE: _signal_stale,
    Reason.STEADY: _steady,
    Reason.KEEP_ALIVE: _keep_alive,
    Reason.DESCENT: _descent,
    Reason.STEP_LIMIT: _step_limit,
    Reason.IDLE: _idle,
    Reason.DELETED: _deleted,
    Reason.AT_LEAST_MIN: _at_least_min,
    Reason.AT_MOST_MAX: _at_most_max,
    Reason.POLICY_UNKNOWN: _policy_unknown,
    Reason.POLICY_FAILED: _policy_failed,
    Reason.SLO_BURN: _slo_burn,
    Reason.SCHEDULED: _scheduled,
    Reason.POLICY_REPLACED: _policy_replaced,
    Reason.OWN_POLICY: _own_policy,
    Reason.RECOMMENDED: _recommended,
    Reason.PAUSED: _paused,
}
"""A sentence for each reason; a test holds it whole."""
