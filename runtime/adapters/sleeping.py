"""How servers with vLLM's endpoints sleep and wake.

Read in the sources of vLLM 0.11.2, 0.20.2 and 0.32.0, and recorded from a real 0.32.0 (`tests/deploy/local/recorded`):

* The endpoints are there with VLLM_SERVER_DEV_MODE=1 only, else 404. 0.11 and 0.20 answer 200 with an empty body, 0.32
  with JSON; 0.32 refuses levels above 2 with 400. What fails inside the engine is a 500.
* `/sleep` aborts what runs (`mode=abort`, since the scheduler is paused for it; 0.11.2 does not look), so only who is
  drained is put to sleep. A request to a sleeping engine waits until it is awake; in 0.11.2 it breaks the engine.
* `/is_sleeping` is true until all tags are awake again; `/health` is 200 all the time.
* `/wake_up` with a tag that does not sleep changes nothing, and answers 200 all the same.
* Level 2 keeps the model's buffers and drops its weights; nothing reads them again but `reload_weights`, from the files
  that it was started with. Woken without it the engine answers gibberish, without an error.
"""

from __future__ import annotations

from typing import Final

from runtime.ports import Call, Sleep

_ASLEEP: Final = "/is_sleeping"

VLLM_SLEEPS: Final = (
    Sleep(level=1, sleep=(Call("/sleep?level=1"),), wake=(Call("/wake_up"),), asleep_path=_ASLEEP),
    # The order of the documentation: room for the weights, the weights, room for the cache. Woken in another one it
    # answers gibberish (vllm#29341).
    Sleep(
        level=2,
        sleep=(Call("/sleep?level=2"),),
        wake=(
            Call("/wake_up?tags=weights"),
            Call("/collective_rpc", b'{"method":"reload_weights"}'),
            Call("/wake_up?tags=kv_cache"),
            Call("/reset_prefix_cache"),
        ),
        asleep_path=_ASLEEP,
    ),
)
"""Level 1 copies the weights to host memory, level 2 drops them; both forget the KV cache."""
