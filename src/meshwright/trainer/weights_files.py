"""What lies in a folder of safetensors: names, shapes and files, read from the headers. Imports no torch.

The format: 8 bytes (little endian) that say how long the header is, the header as JSON, the data
(github.com/huggingface/safetensors, README).
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError, bad_input

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_LONGEST = 100_000_000  # bytes of a header, as the format's own readers allow


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a folder."""

    file: Path
    shape: tuple[int, ...]


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a folder by its stored name: of the files that its index names, or of its only file.

    Raises InputError when there are no safetensors, when a file is missing, cut short or not of that format, and when
    a tensor is in two files.
    """
    found: dict[str, StoredTensor] = {}
    wrong: list[Complaint] = []
    for file in _files(folder):
        for name, entry in _header(file).items():
            if name == "__metadata__":
                continue
            if name in found:
                wrong.append(Complaint(name, "", f"is in {found[name].file.name} and in {file.name}", "", str(folder)))
            found[name] = StoredTensor(file, tuple(entry["shape"]))
    if wrong:
        raise InputError(tuple(wrong))
    return found


def has_weights(folder: Path) -> bool:
    """Does a folder hold safetensors of a model?"""
    return (folder / INDEX).exists() or (folder / SINGLE).exists()


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not has_weights(folder):
        raise bad_input("holds no safetensors", file=str(folder), legal=f"a folder with {SINGLE}, or with {INDEX}")
    if not index.exists():
        return [folder / SINGLE]
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise bad_input(f"is not an index of weights ({error})", file=str(index)) from None
    missing = tuple(
        Complaint("weight_map", name, "there is no such file", "", str(index))
        for name in names
        if not (folder / name).exists()
    )
    if missing:
        raise InputError(missing)
    return [folder / name for name in names]


def _header(file: Path) -> Mapping[str, Any]:
    """The header, once the file is as long as it says."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _LONGEST:
                raise ValueError(f"a header of {length} bytes")
            content: Mapping[str, Any] = json.loads(opened.read(length))
        ends = [entry["data_offsets"][1] for name, entry in content.items() if name != "__metadata__"]
        if file.stat().st_size < 8 + length + max(ends, default=0):
            raise ValueError("it is cut short")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise bad_input(f"is not a whole safetensors file ({error})", file=str(file)) from None
    return content
