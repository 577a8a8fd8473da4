"""Small pools of cards for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from preemption.core.gpus.shapes import CardSpec, Mode, NodeSpec, Task

GI = 1 << 30


def node(name: str = "n0", cards: int = 4, cores: int = 64, model: str = "", memory: int = 512 * GI) -> NodeSpec:
    """A node with whole cards."""
    specs = tuple(CardSpec(id=f"{name}-gpu-{index}") for index in range(cards))
    return NodeSpec(name=name, cpu_milli=cores * 1000, memory_bytes=memory, model=model, cards=specs)


def with_cards(name: str, *cards: CardSpec, cores: int = 64) -> NodeSpec:
    """A node with these cards."""
    return NodeSpec(name=name, cpu_milli=cores * 1000, memory_bytes=512 * GI, cards=cards)


def mig_node(name: str = "m0", family: str = "A100-40GB", cards: int = 1, cores: int = 64) -> NodeSpec:
    """A node whose cards are split by MIG."""
    specs = (CardSpec(id=f"{name}-gpu-{i}", mode=Mode.MIG, family=family) for i in range(cards))
    return with_cards(name, *specs, cores=cores)


def task(gpus: int = 1, milli: int = 1000, cores: float = 1, **more: object) -> Task:
    """What a replica takes."""
    return Task(cpu_milli=round(cores * 1000), memory_bytes=GI, gpus=gpus, milli=milli, **more)  # type: ignore[arg-type] # any field


tasks = st.one_of(
    st.builds(task, st.integers(0, 4), cores=st.sampled_from((1, 4, 12, 20))),
    st.builds(task, st.just(1), st.sampled_from((50, 250, 470, 500, 810)), st.sampled_from((1, 4, 12))),
    st.builds(task, st.just(1), cores=st.just(8), models=st.sampled_from((("A",), ("A", "B"), ("C",)))),
)
"""Tasks of all kinds that the published trace has."""

nodes = st.lists(
    st.tuples(st.sampled_from((0, 1, 2, 4, 8)), st.sampled_from((8, 32, 96)), st.sampled_from(("A", "B", ""))),
    min_size=1, max_size=6,
).map(lambda rows: [node(f"n{row}", *one) for row, one in enumerate(rows)])  # fmt: skip
"""A few nodes, unlike each other."""
