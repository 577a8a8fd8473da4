"""Sentences about how many replicas demand needs: with the numbers that `relume` sized by, or, of other policies, which
size by rules of their own, with what was seen."""

from __future__ import annotations

from autoscaler.core.model import Snapshot
from autoscaler.core.policies.sizing import UP_TOLERANCE, Sizing, up
from autoscaler.core.policy import ScalingPolicy
from autoscaler.words import number, replicas, requests, span


class Need:
    """Of one decision. `policy`: with what was learned that a replica bears. `ours`: relume decided."""

    def __init__(self, snapshot: Snapshot, policy: ScalingPolicy, *, ours: bool) -> None:
        self.snapshot, self.policy, self.ours = snapshot, policy, ours
        self.level = snapshot.demand.running + snapshot.demand.waiting
        self.sizing = Sizing(snapshot, policy)

    @property
    def before(self) -> int:
        """What was wished, or there where nothing was."""
        have = self.snapshot.replicas
        return have.ready + have.starting if self.snapshot.wished is None else self.snapshot.wished

    def backlog(self) -> str:
        """What runs and waits now."""
        sizing, flight = self.sizing, f"{requests(self.level)} in flight"
        if not self.ours:
            return self._by_its_rule()
        if sizing.gathered:
            start = span(self.snapshot.start_seconds or 0.0)
            return (
                f"{self._basis()}; {number(sizing.gathered)} of {flight} gathered while too little was ready, and are "
                f"worked off within the {start} of a start: {replicas(sizing.at_hand)} in all."
            )
        verb = "needs" if self.level == 1 else "need"
        return f"{self._basis()}, so {flight} {verb} {replicas(sizing.at_hand)}."

    def load(self) -> str:
        """What runs now, and averages."""
        if not self.ours:
            return self._by_its_rule()
        demand, sizing = self.snapshot.demand, self.sizing
        needs = sizing.at_hand
        if demand.panic is not None and self.before:
            needs = max(needs, up(sizing.lately, UP_TOLERANCE))
            if sizing.parted and demand.stable is not None:
                if needs < up(sizing.lasting, UP_TOLERANCE) and sizing.lasting == sizing.going_on:
                    return self._goes_on()
                needs = max(needs, up(sizing.lasting, UP_TOLERANCE))
        return f"{self._seen()}, {self._target()}, need {replicas(needs)}{self._part()}."

    def _goes_on(self) -> str:
        """What comes, by how long each takes now, is more than the average of the window yet says."""
        demand, sizing = self.snapshot.demand, self.sizing
        text = (
            f"{requests(self.level)} in flight now, and {number(demand.arrivals_per_second)} a second that take "
            f"{span(demand.seconds_per_request or 0.0)} each now are {number(sizing.goes_on)} at a time"
        )
        if sizing.waits:
            start = span(self.snapshot.start_seconds or 0.0)
            text += (
                f"; {number(sizing.waits)} that gather until more is ready are worked off within the {start} of a start"
            )
        return f"{text}: {self._target()}, need {replicas(up(sizing.lasting, UP_TOLERANCE))}."

    def steady(self, wished: int) -> str:
        """Nothing more and nothing less is needed."""
        if not self.ours:
            return self._by_its_rule()
        room = wished * self.policy.target
        if self.level <= room:
            return f"{self._seen()}, fit into the {number(room)} that {replicas(wished)} should take."
        return f"{self._seen()}, need no more than {replicas(wished)}{self._part()}."

    def descent(self) -> str:
        """The stable window needs fewer."""
        if not self.ours:
            return self._by_its_rule()
        return (
            f"On average {number(self.snapshot.demand.stable or 0.0)} in flight over the last "
            f"{span(self.policy.stable_window)} need fewer than {replicas(self.before)} at a target of "
            f"{number(self.policy.target)}, with room to spare."
        )

    def _by_its_rule(self) -> str:
        return f"{self._seen()}, {self._target()}: so by the rule of {self.policy.name}."

    def _target(self) -> str:
        return f"at a target of {number(self.policy.target)} a replica"

    def _seen(self) -> str:
        demand, policy = self.snapshot.demand, self.policy
        averages = [
            f"{number(average)} over {span(window)}"
            for average, window in ((demand.panic, policy.panic_window), (demand.stable, policy.stable_window))
            if average is not None
        ]
        return f"{requests(self.level)} in flight now" + (f", on average {' and '.join(averages)}" if averages else "")

    def _basis(self) -> str:
        """What one replica takes."""
        if self.sizing.parted:
            return f"A {self._waits()}"
        text = f"The target is {number(self.policy.target)} a replica"
        known = self.sizing.known or self.policy.wait_most is None
        return text if known else f"{text}, and it is not known yet how long one takes"

    def _part(self) -> str:
        """Why less than the target is enough."""
        return (
            f" (a {self._waits()}; only what lasts for the stable window counts in full)" if self.sizing.parted else ""
        )

    def _waits(self) -> str:
        seconds, most = self.snapshot.demand.seconds_per_request, self.policy.wait_most
        return (
            f"request takes {span(seconds or 0.0)} and may wait {span(most or 0.0)} for one of a replica's "
            f"{self.policy.slots} slots"
        )
