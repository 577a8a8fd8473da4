"""An engine with the front before it, as a command."""

from __future__ import annotations

import sys

from events.names import ModelName, ReplicaName
from events.units import Seconds
from runtime.adapters.batching import behind, counted, in_front
from runtime.adapters.simulated import Simulated
from runtime.batching.front import parser
from runtime.core.batching.formats import STATUS_PATH
from runtime.core.policy import Batching, BatchRule
from runtime.ports import LaunchRequest


def test_the_front_is_where_the_replica_is_expected() -> None:
    """The engine listens on the loopback at its own port; the front's flags are those of its program."""
    wanted = LaunchRequest(ModelName("m"), ReplicaName("m-r1-0"), "10.0.0.1", 9000, 8)
    engine = Simulated()
    launch = engine.launch(behind(wanted, 9001))
    batching = Batching(BatchRule.AIMD_GPU, Seconds(0.03), 16, Seconds(2.0))
    both = in_front(launch, wanted, 9001, batching, Seconds(60.0))
    assert both.argv[:4] == (sys.executable, "-P", "-m", "runtime.batching.front")
    given = parser().parse_args(both.argv[4:])
    assert (given.host, given.port, given.engine_port, given.rule) == ("10.0.0.1", 9000, 9001, "aimd-gpu")
    assert (given.window, given.most, given.promise, given.within) == (0.03, 16, 2.0, 60.0)
    assert tuple(given.command) == launch.argv
    assert "9001" in launch.argv
    assert counted(engine.abilities(wanted)).busy_path == STATUS_PATH
