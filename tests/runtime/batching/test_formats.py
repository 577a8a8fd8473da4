"""One request of many, and its answer taken apart: what each gets is what it would have got alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.batching.formats import Asked, Document, Json, NotApart, apart, read, together

EMBEDDINGS, COMPLETIONS, INFER = "/v1/embeddings", "/v1/completions", "/v2/models/m/infer"


def asked(path: str, body: Document) -> Asked:
    """It may share a batch."""
    found = read(path, body)
    assert found is not None
    return found


def embedded(body: Document) -> Document:
    """What an engine answers: the length of each input as its vector."""
    inputs = body["input"]
    assert isinstance(inputs, list)
    data: list[Json] = [
        {"object": "embedding", "index": index, "embedding": [float(len(one))]}
        for index, one in enumerate(inputs) if isinstance(one, str | list)
    ]  # fmt: skip
    total = sum(len(one) for one in inputs if isinstance(one, str | list))
    return {"object": "list", "model": "m", "data": data, "usage": {"prompt_tokens": total, "total_tokens": total}}


@given(texts=st.lists(st.lists(st.text(max_size=9), min_size=1, max_size=3), min_size=1, max_size=6))
def test_embeddings_together_are_embeddings_alone(texts: list[list[str]]) -> None:
    """Each has its own vectors, counted from zero; what was counted adds up."""
    members = [asked(EMBEDDINGS, {"model": "m", "input": list(one)}) for one in texts]
    answer = embedded(together(members))
    answers = apart(members, answer)
    for one, mine in zip(texts, answers, strict=True):
        assert mine["data"] == embedded({"input": list(one)})["data"]
        assert mine["model"] == "m"
    used = [mine["usage"] for mine in answers]
    assert sum(one["prompt_tokens"] for one in used if isinstance(one, dict)) == sum(len(x) for t in texts for x in t)  # type: ignore[misc] # whole numbers


def test_one_text_tokens_and_texts_keep_their_shape() -> None:
    """A text is one input, as are the tokens of one; several are several. Text and tokens do not mix."""
    sizes: list[tuple[Json, int]] = [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)]
    for given_, size in sizes:
        assert asked(EMBEDDINGS, {"input": given_}).size == size
    assert asked(EMBEDDINGS, {"input": "a"}).key != asked(EMBEDDINGS, {"input": [1]}).key
    assert asked(EMBEDDINGS, {"input": "a", "x": 1}).key != asked(EMBEDDINGS, {"input": "a"}).key
    assert asked(EMBEDDINGS, {"input": "a"}).key == asked(EMBEDDINGS, {"input": ["b", "c"]}).key


ONE: Document = {"name": "x", "shape": [1], "datatype": "T", "data": [1]}
ALONE: list[tuple[str, Json]] = [
    (COMPLETIONS, {"prompt": "a", "stream": True}), (COMPLETIONS, {"prompt": "a", "n": 2}),
    (COMPLETIONS, {"prompt": "a", "best_of": 3}), (COMPLETIONS, {"prompt": []}), (COMPLETIONS, {"prompt": 5}),
    (COMPLETIONS, {"prompt": ["a", [1]]}), (COMPLETIONS, []), (COMPLETIONS, None), (EMBEDDINGS, {"prompt": "a"}),
    ("/v1/chat/completions", {"messages": []}), (INFER, {"inputs": []}),
    (INFER, {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0]}]}),
    (INFER, {"inputs": [{"name": "x", "shape": [0], "datatype": "FP32", "data": []}]}),
    (INFER, {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}]}),
    (INFER, {"inputs": [ONE], "parameters": {"binary_data": True}}),
    (INFER, {"inputs": [ONE, {"name": "y", "shape": [2], "datatype": "T", "data": [1, 2]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), ALONE)
def test_what_cannot_be_told_apart_goes_alone(path: str, body: Json) -> None:
    """Streams, several choices, binary tensors, and what is wrong anyway."""
    assert read(path, body) is None


def test_completions_have_their_own_choices() -> None:
    """Choices come in any order, and are found by their index."""
    members = [
        asked(COMPLETIONS, {"prompt": "ab", "max_tokens": 3}),
        asked(COMPLETIONS, {"prompt": ["c", "d"], "max_tokens": 3}),
    ]
    assert together(members) == {"prompt": ["ab", "c", "d"], "max_tokens": 3}
    choices: list[Json] = [{"index": index, "text": text} for index, text in ((2, "D"), (0, "AB"), (1, "C"))]
    first, second = apart(
        members, {"id": "x", "choices": choices, "usage": {"prompt_tokens": 9, "completion_tokens": 5}}
    )
    assert first["choices"] == [{"index": 0, "text": "AB"}]
    assert second["choices"] == [{"index": 0, "text": "C"}, {"index": 1, "text": "D"}]
    assert first["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert second["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def tensor(rows: list[list[float]], name: str = "x") -> Document:
    """A batch of rows of two."""
    return {"name": name, "shape": [len(rows), 2], "datatype": "FP32", "data": [list[Json](row) for row in rows]}


@given(
    rows=st.lists(
        st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=3), min_size=1, max_size=5
    )
)
def test_tensors_are_stacked_and_sliced(rows: list[list[tuple[float, float]]]) -> None:
    """An engine that gives its input back gives each its own rows, and its own id."""
    members = [
        asked(INFER, {"id": f"r{index}", "inputs": [tensor([list(row) for row in mine])]})
        for index, mine in enumerate(rows)
    ]
    body = together(members)
    assert "id" not in body
    answers = apart(members, {"model_name": "m", "id": "whole", "outputs": body["inputs"]})
    for index, mine in enumerate(rows):
        outputs = [
            {"name": "x", "shape": [len(mine), 2], "datatype": "FP32", "data": [one for row in mine for one in row]}
        ]
        assert answers[index] == {"model_name": "m", "id": f"r{index}", "outputs": outputs}


def test_other_shapes_and_types_do_not_go_together() -> None:
    """The batch is the first dimension; all else must be the same."""
    kinds: list[tuple[str, list[Json], str, list[Json]]] = [
        ("x", [1, 2], "FP32", [1, 1]), ("x", [1, 3], "FP32", [1, 1, 1]), ("x", [1, 2], "INT32", [1, 1]),
        ("y", [1, 2], "FP32", [1, 1]),
    ]  # fmt: skip
    keys = {
        asked(INFER, {"inputs": [{"name": name, "shape": shape, "datatype": kind, "data": data}]}).key
        for name, shape, kind, data in kinds
    }
    assert len(keys) == 4


@pytest.mark.parametrize("answer", [
    None, [], {}, {"data": []}, {"data": [{"index": 0}]}, {"data": [{"index": 0}, {"index": 0}]}, {"data": [1, 2]},
])  # fmt: skip
def test_an_answer_that_is_not_theirs_is_refused(answer: Json) -> None:
    """Fewer entries, none, twice the same: nobody gets another's."""
    members = [asked(EMBEDDINGS, {"input": text}) for text in "ab"]
    with pytest.raises(NotApart):
        apart(members, answer)


@pytest.mark.parametrize("output", [
    {"name": "x", "shape": [1], "data": [1]}, {"name": "x", "shape": [2], "data": [1]}, {"name": "x", "data": [1]}, 5,
])  # fmt: skip
def test_an_output_without_the_batch_is_refused(output: Json) -> None:
    """Such as a sum over all: it belongs to nobody alone."""
    members = [asked(INFER, {"inputs": [{"name": "x", "shape": [1], "datatype": "T", "data": [1]}]}) for _ in "ab"]
    with pytest.raises(NotApart):
        apart(members, {"outputs": [output]})
