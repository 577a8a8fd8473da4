"""What an answer's usage object says is found in its last bytes, in whatever pieces they came, and little is kept."""

from __future__ import annotations

import pytest

from tests.runtime.gateway.test_call_count import REQUEST, Pair

OPENAI = (
    b'{"usage":{"prompt_tokens":7,"total_tokens":18,"completion_tokens": 11,'
    b'"prompt_tokens_details":{"cached_tokens":5}}}'
)


async def answered(body: bytes, piece: int) -> tuple[int, int]:
    """The counts of an answer whose body came in pieces of so many bytes."""
    pair = Pair()
    pair.client.data_received(REQUEST)
    pair.outbox.flush()
    pair.replica.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:piece])
    for at in range(piece, len(body), piece):
        pair.replica.data_received(body[at : at + piece])
    pair.outbox.flush()
    assert b"".join(pair.to_client.writes).endswith(b"\r\n\r\n" + body)
    pair.wheel.close()
    ((_, outcome),) = pair.slots.outcomes
    return outcome.tokens_in, outcome.tokens_out


@pytest.mark.parametrize("piece", [1, 7, 100, 211, 511, 512, 513, 1023, 1024, 1025, 5000, 100_000])
@pytest.mark.parametrize("behind", [0, 300, 900])
async def test_found_whatever_the_pieces(piece: int, behind: int) -> None:
    """Bytes, lines, whole answers: the object is in the last kilobyte, and cut anywhere."""
    assert await answered(b"x" * 6000 + OPENAI + b" " * behind, piece) == (7, 11)


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (b"", (0, 0)),
        (b'"usage"', (0, 0)),
        (b'"usage":null', (0, 0)),
        (b'{"usage":{"input_tokens":3,"output_tokens":4}}', (3, 4)),
        (b'{"usage":{"output_tokens":4,"input_tokens" : 3}}', (3, 4)),
        (b'{"usage":{"total_tokens":9}}', (0, 0)),
        (b'{"usage":{"prompt_tokens":3}}', (3, 0)),
        (b'{"usage":{"prompt_tokens":3,"prompt_tokens":4,"completion_tokens":5}}', (3, 5)),
        (b'{"prompt_tokens":3,"usage":1}', (0, 0)),
        (b'{"usage":1,"usage":{"prompt_tokens":3}}', (3, 0)),
        (b'"usage"_tokens"', (0, 0)),
        (b'{"usage":{"prompt_tokens":1234567890123456}}', (123456789012, 0)),
    ],
)
async def test_names_and_numbers(body: bytes, counts: tuple[int, int]) -> None:
    """OpenAI's names and those of its newer API, the first of each; anything else counts as nothing."""
    assert await answered(body, 100_000) == counts
