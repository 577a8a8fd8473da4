"""Stories of shortages as texts: what is granted and recorded, in order, with seconds since the beginning.

A line names the model or job, what it has then, and why; or the state that an attempt has come to, and what led there.
"""

from __future__ import annotations

import pytest

from preemption.core.training import Channel, CheckpointPolicy
from tests.support.lending import SMALLEST, LendingWorld, check, one_card, wish
from tests.support.pool import needs, node
from tests.support.training import Trainer


def test_a_model_wakes_and_sleeps_again() -> None:
    """The whole way: notice, checkpoint, empty card, claim, bound; idle again, and training goes on in its next run."""
    world = one_card()
    wish(world, 1)
    world.pass_time(10)
    wish(world, 0)
    world.pass_time(20)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 llama has nothing; short of 1: waits for tune to hear the notice; due in 130 s
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          20.2 llama has nothing; short of 1: waits for tune to save; due in 120 s
          24.2 tune: saved (checkpointed)
          24.2 llama has nothing; short of 1: waits for tune to end; due in 5 s
          24.5 tune: draining (exit_saved)
          24.5 llama has nothing; short of 1: waits for tune to be gone from its cards; due in 60 s
          24.5 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: claimed (cards_empty)
          25.0 llama has llama-r1-0
          25.0 tune run 1 has nothing (yields)
          25.0 tune: parked (bound)
          25.0 tune run 1 has nothing (lacks_room)
          30.0 llama has llama-r1-0 drains
          30.0 llama has nothing
          30.0 tune run 1 has nothing (settles)
          35.0 tune: resuming (capacity_back)
          35.0 tune run 2 has n1-gpu-0 (runs)
          38.0 tune: resumed (step_seen)
        """,
        messages=True,
    )


_TOLD = """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
"""


def _lines(*parts: str) -> str:
    """The lines of all parts, as a story has them."""
    found = (line.split(maxsplit=1) for part in parts for line in part.splitlines() if line.strip())
    return "\n".join(f"{float(at):6.1f} {what}" for at, what in found)


def _ended(at: float, stop: str) -> str:
    """How a run ends that was made to."""
    return "\n".join((
        f"{at:6.1f} tune: draining (exit_error)",
        f"{at:6.1f} tune run 1 has n1-gpu-0; save_and_exit; {stop} (waits_until_empty)",
        f"{at + 0.5:6.1f} tune: claimed (cards_empty)",
        f"{at + 0.5:6.1f} llama has llama-r1-0",
        f"{at + 0.5:6.1f} tune run 1 has nothing (yields)",
        f"{at + 0.5:6.1f} tune: parked (bound)",
        f"{at + 0.5:6.1f} tune run 1 has nothing (lacks_room)",
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("trainer", "channels", "seconds", "middle", "end"),
    [
        pytest.param(
            Trainer(hears=None), None, 15.0,
            """
          20.0 tune: notified (sent)
          30.0 tune: stopping (timeout)
          30.0 tune run 1 has n1-gpu-0; save_and_exit; terminate (yields)
            """, _ended(31.0, "terminate"), id="ignores the notice: SIGTERM after the declared time",
        ),
        pytest.param(
            Trainer(hears=None, ends=None), None, 45.0,
            """
          20.0 tune: notified (sent)
          30.0 tune: stopping (timeout)
          30.0 tune run 1 has n1-gpu-0; save_and_exit; terminate (yields)
          60.0 tune: killing (timeout)
          60.0 tune run 1 has n1-gpu-0; save_and_exit; kill (yields)
            """, _ended(60.2, "kill"), id="ignores SIGTERM too: SIGKILL after its grace",
        ),
        pytest.param(
            Trainer(saves=None), None, 125.0,
            """
          20.0 tune: notified (sent)
          20.5 tune: saving (ack)
         140.5 tune: stopping (timeout)
         140.5 tune run 1 has n1-gpu-0; save_and_exit; terminate (yields)
            """, _ended(141.5, "terminate"), id="hears and hangs: it has the declared time of a save",
        ),
        pytest.param(
            Trainer(sdk=False), (), 5.0,
            """
          20.0 tune: stopping (timeout)
          20.0 tune run 1 has n1-gpu-0; save_and_exit; terminate (yields)
            """, _ended(21.0, "terminate"), id="no channel reaches it: SIGTERM at once",
        ),
    ],
)  # fmt: skip
def test_a_trainer_that_does_not_obey_is_told_harder(
    trainer: Trainer, channels: tuple[Channel, ...] | None, seconds: float, middle: str, end: str
) -> None:
    """On the clock of its contract; then the model has the card."""
    told = {} if channels is None else {"checkpoint": CheckpointPolicy(channels=channels)}
    world = one_card(trainer, **told)
    wish(world, 1)
    world.pass_time(seconds, every=0.5 if seconds > 100 else SMALLEST)
    check(world, _lines(_TOLD, middle, end))


def test_what_cannot_be_killed_is_given_to_nobody() -> None:
    """Its card stays taken; the model is told, and nobody signals it for ever."""
    world = one_card(Trainer(hears=None, ends=None, dies=None))
    wish(world, 1)
    world.pass_time(180, every=0.5)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 llama has nothing; short of 1: waits for tune to hear the notice; due in 130 s
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          30.0 tune: stopping (timeout)
          30.0 llama has nothing; short of 1: waits for tune to stop; due in 30 s
          30.0 tune run 1 has n1-gpu-0; save_and_exit; terminate (yields)
          60.0 tune: killing (timeout)
          60.0 llama has nothing; short of 1: waits for tune to be killed; due in 15 s
          60.0 tune run 1 has n1-gpu-0; save_and_exit; kill (yields)
          75.0 tune: lost (timeout)
          75.0 llama has nothing; short of 1: no training may yield: tune yields already
          75.0 tune run 1 has n1-gpu-0; save_and_exit; kill (waits_until_empty)
         135.0 tune: parked (timeout)
         135.0 llama has nothing; short of 1: needs 1 GPU; 0 of 1 are free
         135.0 tune run 1 has nothing (waits_until_empty)
        """,
        messages=True,
    )


def test_demand_vanishes_before_the_save() -> None:
    """The notice is withdrawn and the run goes on."""
    world = one_card()
    wish(world, 1)
    world.pass_time(2)
    wish(world, 0)
    world.pass_time(10)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          22.0 tune: cancelling (shortage_gone)
          22.0 llama has nothing
          22.0 tune run 1 has n1-gpu-0; withdrawn (goes_on)
          22.0 tune: continued (step_seen)
          22.0 tune run 1 has n1-gpu-0 (runs)
        """,
    )


def test_demand_vanishes_after_the_save() -> None:
    """It is too late to stay: it ends, and starts again as soon as there has been room for a while."""
    world = one_card()
    wish(world, 1)
    world.pass_time(4.3)
    wish(world, 0)
    world.pass_time(10)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          24.2 tune: saved (checkpointed)
          24.3 tune: cancelling (shortage_gone)
          24.3 llama has nothing
          24.3 tune run 1 has n1-gpu-0; withdrawn (goes_on)
          24.5 tune: draining (exit_saved)
          24.5 tune run 1 has n1-gpu-0; withdrawn (waits_until_empty)
          25.0 tune: parked (shortage_gone)
          25.0 tune run 1 has nothing (settles)
          30.0 tune: resuming (capacity_back)
          30.0 tune run 2 has n1-gpu-0 (runs)
          33.0 tune: resumed (step_seen)
        """,
    )


def test_a_victim_finishes_by_itself() -> None:
    """Its card goes to the model, and there is nothing to resume."""
    world = one_card(Trainer(hears=None, steps=22))
    wish(world, 1)
    world.pass_time(8)
    wish(world, 0)
    world.pass_time(8)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          24.0 tune: draining_done (exit_done)
          24.0 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          24.5 tune: finished (cards_empty)
          24.5 llama has llama-r1-0
          24.5 tune run 1 has nothing (finished)
          28.0 llama has llama-r1-0 drains
          28.0 llama has nothing
        """,
    )


def test_the_node_is_lost() -> None:
    """A card that is gone is given to nobody; the job waits."""
    world = one_card()
    wish(world, 1)
    world.pass_time(2)
    world.set_node(node(gpus=0))
    world.pass_time(4)
    check(
        world,
        """
          20.0 tune: selected for llama
          20.0 tune run 1 has n1-gpu-0; save_and_exit (yields)
          20.0 tune: notified (sent)
          20.2 tune: saving (ack)
          22.1 tune: lost (node_lost)
          22.1 tune run 1 has n1-gpu-0; save_and_exit (waits_until_empty)
          25.0 tune: parked (gone)
          25.0 tune run 1 has nothing (lacks_room)
        """,
    )


def test_two_shortages_fight() -> None:
    """What was freed for one goes to that one, though the other has a higher priority; nothing is asked for twice."""
    world = LendingWorld(node(gpus=2))
    world.train("tune", resources=needs(gpus=2))
    world.declare("llama", resources=needs(gpus=1))
    world.declare("qwen", resources=needs(gpus=2), priority=200)
    world.settle()
    wish(world, 1)
    world.pass_time(1)
    wish(world, 1, "qwen")
    world.pass_time(6)
    wish(world, 0)
    world.pass_time(4)
    wish(world, 0, "qwen")
    world.pass_time(20)
    check(
        world,
        """
           0.0 tune run 1 has n1-gpu-0+n1-gpu-1 (runs)
           0.0 tune: selected for llama
           0.0 tune run 1 has n1-gpu-0+n1-gpu-1; save_and_exit (yields)
           0.0 tune: notified (sent)
           2.2 tune: saving (ack)
           6.2 tune: saved (checkpointed)
           6.5 tune: draining (exit_saved)
           6.5 tune run 1 has n1-gpu-0+n1-gpu-1; save_and_exit (waits_until_empty)
           7.0 tune: claimed (cards_empty)
           7.0 llama has llama-r1-0
           7.0 tune run 1 has nothing (yields)
           7.0 tune: parked (bound)
           7.0 tune run 1 has nothing (lacks_room)
           7.0 llama has llama-r1-0 drains
           7.0 llama has nothing
           7.0 qwen has qwen-r1-0
          11.0 qwen has qwen-r1-0 drains
          11.0 qwen has nothing
          11.0 tune run 1 has nothing (settles)
          16.0 tune: resuming (capacity_back)
          16.0 tune run 2 has n1-gpu-0+n1-gpu-1 (runs)
          19.0 tune: resumed (step_seen)
        """,
    )


def test_a_gang_over_two_nodes_yields_and_returns_whole() -> None:
    """One card is needed; all of the gang saves, ends and comes back together."""
    world = LendingWorld(node("n1", gpus=1), node("n2", gpus=1))
    world.train("tune", members=2)
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(10)
    wish(world, 1)
    world.pass_time(8)
    wish(world, 0)
    world.pass_time(15)
    check(
        world,
        """
           0.0 tune run 1 has n1-gpu-0 n2-gpu-0 (runs)
          10.0 tune: selected for llama
          10.0 tune run 1 has n1-gpu-0 n2-gpu-0; save_and_exit (yields)
          10.0 tune: notified (sent)
          10.2 tune: saving (ack)
          14.2 tune: saved (checkpointed)
          14.5 tune: draining (exit_saved)
          14.5 tune run 1 has n1-gpu-0 n2-gpu-0; save_and_exit (waits_until_empty)
          15.0 tune: claimed (cards_empty)
          15.0 llama has llama-r1-0
          15.0 tune run 1 has nothing (yields)
          15.0 tune: parked (bound)
          15.0 tune run 1 has nothing (lacks_room)
          18.0 llama has llama-r1-0 drains
          18.0 llama has nothing
          18.0 tune run 1 has nothing (settles)
          23.0 tune: resuming (capacity_back)
          23.0 tune run 2 has n1-gpu-0 n2-gpu-0 (runs)
          26.0 tune: resumed (step_seen)
        """,
    )


def test_part_of_a_wish_is_served() -> None:
    """Two replicas are wished for and one job may yield: one is served, the other told."""
    world = LendingWorld(node(gpus=2))
    world.train("tune")
    world.train("safe", protected=True)
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(5)
    world.story.clear()
    wish(world, 2)
    world.pass_time(10)
    check(
        world,
        """
           5.0 tune: selected for llama
           5.0 llama has nothing; short of 2: waits for tune to hear the notice; due in 130 s
           5.0 tune run 1 has n1-gpu-1; save_and_exit (yields)
           5.0 tune: notified (sent)
           5.2 tune: saving (ack)
           5.2 llama has nothing; short of 2: waits for tune to save; due in 120 s
           9.2 tune: saved (checkpointed)
           9.2 llama has nothing; short of 2: waits for tune to end; due in 5 s
           9.5 tune: draining (exit_saved)
           9.5 llama has nothing; short of 2: waits for tune to be gone from its cards; due in 60 s
           9.5 tune run 1 has n1-gpu-1; save_and_exit (waits_until_empty)
          10.0 tune: claimed (cards_empty)
          10.0 llama has llama-r1-0; short of 1: what tune gave up is set aside for it, and is not enough yet
          10.0 tune run 1 has nothing (yields)
          10.0 tune: parked (bound)
          10.0 llama has llama-r1-0; short of 1: no training may yield: safe is protected
          10.0 tune run 1 has nothing (lacks_room)
        """,
        messages=True,
    )
