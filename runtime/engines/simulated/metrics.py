"""Prometheus text with vLLM's names (vLLM docs, design/metrics), so that scrapers made for vLLM work. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from runtime.engines.simulated.answers import Answer

# vLLM's bounds of time_to_first_token_seconds and e2e_request_latency_seconds.
_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_WHOLE = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip


class Histogram:
    """Counts by bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, label: str) -> list[str]:
        """The exposition's lines."""
        lines = [f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
        return [*lines, f"{name}_sum{{{label}}} {self._sum}", f"{name}_count{{{label}}} {total}"]


class Measures:
    """What is counted while requests run."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self._first_token = Histogram(_FIRST_TOKEN)
        self._whole = Histogram(_WHOLE)
        self._ends: dict[str, int] = {}

    def first_token(self, seconds: float) -> None:
        """A request's first token, `seconds` after its arrival."""
        self._first_token.observe(seconds)

    def finished(self, answer: Answer, seconds: float) -> None:
        """A whole answer."""
        self.prompt_tokens += answer.prompt_tokens
        self._whole.observe(seconds)
        self._ends[answer.finish.value] = self._ends.get(answer.finish.value, 0) + 1

    def text(self, model: str, running: int, waiting: int, kv_use: float) -> str:
        """The whole exposition."""
        label = f'model_name="{_escaped(model)}"'
        gauges = {"num_requests_running": running, "num_requests_waiting": waiting, "kv_cache_usage_perc": kv_use,
                  "gpu_cache_usage_perc": kv_use}  # fmt: skip
        totals = {"prompt_tokens_total": self.prompt_tokens, "generation_tokens_total": self.generated_tokens}
        lines = []
        for name, value in gauges.items():
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{label}}} {float(value)}"]
        for name, total in totals.items():
            lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{label}}} {float(total)}"]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, count in sorted(self._ends.items()):
            lines.append(f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {float(count)}')
        lines += self._first_token.lines("vllm:time_to_first_token_seconds", label)
        lines += self._whole.lines("vllm:e2e_request_latency_seconds", label)
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
