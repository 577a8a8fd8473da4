"""The small model with its tensors unpacked to 32 bits: the same weights, and 538 MB to fetch, hash and load.

A cold start of the 98 MB that the demo ships is over before its phases can be told apart. GGUF as its specification has
it: header, key and value pairs, infos of tensors, then the tensors, each at a multiple of the alignment.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

F32, Q4_1, Q8_0 = 0, 3, 8
"""The kinds of tensors (``ggml_type``) that the small model has."""
STRING, ARRAY = 8, 9
WIDTHS: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by its kind (``gguf_metadata_value_type``)."""
ALIGNMENT: Final = 32
Q4_1_BLOCK: Final = np.dtype([("scale", "<f2"), ("least", "<f2"), ("weights", "u1", 16)])
Q8_0_BLOCK: Final = np.dtype([("scale", "<f2"), ("weights", "i1", 32)])
"""32 weights and what they have in common (``block_q4_1``, ``block_q8_0`` of ggml)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The info of a tensor. `at`: its first byte, counted from the beginning of the data."""

    name: bytes
    lengths: tuple[int, ...]
    kind: int
    at: int

    @property
    def count(self) -> int:
        """How many weights it has."""
        return math.prod(self.lengths)


def unpack(source: Path, target: Path) -> None:
    """Write the model `source` with all its tensors as F32. KeyError: it has a tensor of another kind than ours."""
    with source.open("rb") as file, target.open("wb") as out:
        head = file.read(24)
        tensors, pairs = struct.unpack("<8xQQ", head)
        for _ in range(pairs):
            _string(file)
            _skip(file, _number(file, "I"))
        length = file.tell()
        infos = [_tensor(file) for _ in range(tensors)]
        data = _aligned(file.tell())
        file.seek(0)
        out.write(file.read(length))
        at = 0
        for tensor in infos:
            out.write(_info(tensor, at))
            at = _aligned(at + 4 * tensor.count)
        for tensor in infos:
            out.write(bytes(_aligned(out.tell()) - out.tell()))
            file.seek(data + tensor.at)
            out.write(_weights(file, tensor).astype("<f4").tobytes())


def _weights(file: BinaryIO, tensor: Tensor) -> npt.NDArray[np.float32]:
    """The weights of the tensor that begins here."""
    if tensor.kind == F32:
        return np.frombuffer(file.read(4 * tensor.count), "<f4")
    block = {Q4_1: Q4_1_BLOCK, Q8_0: Q8_0_BLOCK}[tensor.kind]
    blocks = np.frombuffer(file.read(tensor.count // 32 * block.itemsize), block)
    packed, scale = blocks["weights"], blocks["scale"].astype(np.float32)[:, None]
    if tensor.kind == Q8_0:
        return packed.astype(np.float32) * scale
    halves = np.concatenate((packed & 15, packed >> 4), axis=1)
    return halves.astype(np.float32) * scale + blocks["least"].astype(np.float32)[:, None]


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0])


def _string(file: BinaryIO) -> bytes:
    return file.read(_number(file, "Q"))


def _skip(file: BinaryIO, kind: int) -> None:
    """Pass a value by."""
    if kind == STRING:
        _string(file)
    elif kind == ARRAY:
        kind, count = _number(file, "I"), _number(file, "Q")
        for _ in range(count):
            _skip(file, kind)
    else:
        file.seek(WIDTHS[kind], 1)


def _tensor(file: BinaryIO) -> Tensor:
    name = _string(file)
    lengths = tuple(_number(file, "Q") for _ in range(_number(file, "I")))
    return Tensor(name, lengths, _number(file, "I"), _number(file, "Q"))


def _info(tensor: Tensor, at: int) -> bytes:
    """As it stands in the file, for F32 at that place."""
    lengths = struct.pack(f"<I{len(tensor.lengths)}Q", len(tensor.lengths), *tensor.lengths)
    return struct.pack("<Q", len(tensor.name)) + tensor.name + lengths + struct.pack("<IQ", F32, at)


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT
