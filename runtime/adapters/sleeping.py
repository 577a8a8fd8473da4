"""How servers with vLLM's endpoints sleep and wake (vLLM's documentation, "Sleep Mode")."""

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
