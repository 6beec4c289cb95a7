"""Megatron's tokenised documents: a .bin of raw token ids and a .idx that says where each document ends.

The .idx holds, little-endian: "MMIDIDX" and two zero bytes; version 1 (uint64); a code of the type of a token (uint8);
the number of sequences n and of document ends d (uint64 each); n lengths (int32); n places in bytes in the .bin
(int64); d sequence numbers at which documents begin and the last one ends (int64); for some data n modes (int8).
Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import InputError, bad_input
from meshwright.basics.quantities import count_text

_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<9sQBQQ")
_TYPES: Mapping[int, str] = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_CHUNK = 2**24  # tokens looked at together


@dataclass(frozen=True, slots=True)
class Indexed:
    """Tokens [n], memory-mapped; `documents` [d + 1]: where each begins, and where the last ends."""

    file: Path
    tokens: NDArray[Any]
    documents: NDArray[np.int64]


def open_indexed(index: Path) -> Indexed:
    """The pair that `index` (the .idx) belongs to. Raises InputError for a damaged .idx, and for a .bin that is not as
    long as it says."""
    content = np.memmap(index, np.uint8, "r") if index.stat().st_size else np.empty(0, np.uint8)
    if len(content) < _HEAD.size or content[: len(_MAGIC)].tobytes() != _MAGIC:
        raise _broken(index, "is no index of tokenised documents", "it must begin with MMIDIDX")
    _, version, code, sequences, ends = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if version != 1 or code not in _TYPES:
        raise _broken(index, f"has version {version} and type of token {code}", "version 1, a type of whole numbers")
    sizes = (4 * sequences, 8 * sequences, 8 * ends)
    need = _HEAD.size + sum(sizes)
    if len(content) not in (need, need + sequences):  # with modes
        rule = f"has {len(content)} bytes; {sequences} sequences and {ends} document ends take {need}"
        raise _broken(index, rule, "the file is cut short, or not of this kind")
    lengths, places, bounds = (
        np.frombuffer(content[begin : begin + size].tobytes(), dtype)
        for begin, size, dtype in zip(
            _HEAD.size + np.cumsum((0, *sizes[:2])), sizes, ("<i4", "<i8", "<i8"), strict=True
        )
    )
    dtype, file = np.dtype("<" + np.dtype(_TYPES[code]).str[1:]), index.with_suffix(".bin")
    begins = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    count = int(begins[-1])
    if (lengths < 0).any() or (places != begins[:-1] * dtype.itemsize).any():
        raise _broken(index, "does not list its sequences one after the other", "an .idx and .bin written together")
    if ends < 1 or bounds[0] != 0 or bounds[-1] != sequences or (np.diff(bounds) < 0).any():
        raise _broken(index, f"its documents do not cover its {sequences} sequences")
    have = file.stat().st_size
    if have != count * dtype.itemsize:
        state = "is cut short" if have < count * dtype.itemsize else "is longer than its index"
        raise _broken(file, f"{state}: {have} bytes, {index.name} counts {count} tokens of {dtype.itemsize}")
    tokens = np.memmap(file, dtype, "r") if count else np.empty(0, dtype)
    return Indexed(file, tokens, begins[bounds])


def highest_token(
    indexed: Indexed, progress: Callable[[str], None], each: Callable[[bytes], None] = lambda chunk: None
) -> int:
    """The largest token id; `each` is shown all bytes on the way. Raises InputError with its place for one below 0."""
    highest, tokens = 0, indexed.tokens
    for begin, chunk in _chunks(tokens):
        if int(chunk.min()) < 0:
            place = begin + int(np.argmax(chunk < 0))
            raise _broken(indexed.file, f"has the token {int(tokens[place])} at {place}", "token ids of 0 or more")
        highest = max(highest, int(chunk.max()))
        each(chunk.tobytes())
        if len(tokens) > _CHUNK:
            progress(f"data: looked at {count_text(begin + len(chunk))} of {count_text(len(tokens))} tokens")
    return highest


def _chunks(tokens: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    for begin in range(0, len(tokens), _CHUNK):
        yield begin, tokens[begin : begin + _CHUNK]


def _broken(file: Path, rule: str, legal: str = "") -> InputError:
    return bad_input(rule, file=str(file), legal=legal)
