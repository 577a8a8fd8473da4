"""A LoRA adapter as a GGUF file (version 3), made for a tensor of a model: small, always the same, and felt."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

_STRING, _FLOAT = 8, 6  # gguf_type of the GGUF specification
_F32 = 0  # ggml_type
_ALIGNMENT = 32
RANK = 2
STRENGTH = 0.5
"""Standard deviation of its numbers: far more than any that was trained, so that the first token shows it."""


def write(path: Path, tensor: str, width: int, height: int) -> Path:
    """An adapter of `tensor` (such as blk.0.ffn_down.weight), which maps `width` numbers to `height`."""
    draw = np.random.default_rng(1)
    a = draw.normal(0.0, STRENGTH, (RANK, width)).astype("<f4")
    b = draw.normal(0.0, STRENGTH, (height, RANK)).astype("<f4")
    facts = (("general.type", "adapter"), ("general.architecture", "llama"), ("adapter.type", "lora"))
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(facts) + 1)
    for key, value in facts:
        head += _text(key) + struct.pack("<I", _STRING) + _text(value)
    head += _text("adapter.lora.alpha") + struct.pack("<If", _FLOAT, float(RANK))
    first = a.tobytes()
    for name, array, offset in ((f"{tensor}.lora_a", a, 0), (f"{tensor}.lora_b", b, _padded(len(first)))):
        rows, columns = array.shape  # GGUF names the quickest dimension first
        head += _text(name) + struct.pack("<IQQIQ", 2, columns, rows, _F32, offset)
    path.write_bytes(_pad(head) + _pad(first) + _pad(b.tobytes()))
    return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _pad(data: bytes) -> bytes:
    return data + bytes(_padded(len(data)) - len(data))
