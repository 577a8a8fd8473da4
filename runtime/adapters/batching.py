"""An engine with the front before it, as the cluster adapter starts and looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from events.units import Seconds
from runtime.adapters.programs import program
from runtime.core.batching.formats import STATUS_PATH
from runtime.core.policy import Batching
from runtime.ports import Abilities, Launch, LaunchRequest

ENGINE_HOST: Final = "127.0.0.1"


def behind(wanted: LaunchRequest, port: int) -> LaunchRequest:
    """What the engine is asked to run: at a port of its own, which only the front calls."""
    return replace(wanted, host=ENGINE_HOST, port=port)


def in_front(engine: Launch, wanted: LaunchRequest, port: int, batching: Batching, within: Seconds) -> Launch:
    """The command of both: the front where the replica is expected, the engine at `port`. `within`: for one batch."""
    front = program(
        "runtime.batching.front",
        {
            "host": wanted.host, "port": wanted.port, "engine-port": port, "rule": batching.rule.value,
            "window": batching.window, "most": batching.most, "promise": batching.promise, "within": within,
        },
    )  # fmt: skip
    return Launch(argv=(*front.argv, "--", *engine.argv), env={**front.env, **engine.env})


def counted(abilities: Abilities) -> Abilities:
    """The front counts requests; the engine would count batches. The front passes no descriptor on to the engine, which
    so cannot await its weights."""
    return replace(abilities, busy_path=STATUS_PATH, awaits_weights=False)
