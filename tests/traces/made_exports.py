"""Nsight Systems exports, snapshots and pickles made for tests."""

import pickle
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from meshwright.basics.errors import InputError

PROCESS = 0x1000000000000  # where the exporter puts a process id: bits 24 to 47


def pid(number: int) -> int:
    """A globalPid."""
    return PROCESS | number << 24


Tables = Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]


def export(path: Path, tables: Tables, version: str = "3.24.1") -> Path:
    """An export with those tables: name -> (columns, rows)."""
    with closing(sqlite3.connect(path)) as made:
        whole = {"META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", version)]), **tables}
        for name, (columns, rows) in whole.items():
            made.execute(f'create table "{name}" ({", ".join(chr(34) + c + chr(34) for c in columns)})')
            made.executemany(f'insert into "{name}" values ({", ".join("?" * len(columns))})', rows)
        made.commit()
    return path


KERNEL = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "shortName", "demangledName")
RUNTIME = ("start", "end", "correlationId", "globalTid", "nameId")
STRINGS = (("id", "value"), [(1, "gemm"), (2, "ncclDevKernel_AllReduce"), (3, "iteration 7"), (4, "iteration 8")])


def block(address: int, size: int, live: bool, frames: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A block of a segment."""
    state = "active_allocated" if live else "inactive"
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": list(frames)}


def segment(size: int, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A segment on device 0."""
    active = sum(b["size"] for b in blocks if b["state"].startswith("active"))
    return {"device": 0, "address": blocks[0]["address"], "total_size": size, "active_size": active,
            "allocated_size": active, "stream": 0, "segment_type": "large", "blocks": list(blocks)}  # fmt: skip


def frame(file: str, line: int, name: str) -> dict[str, Any]:
    """A frame of a stack."""
    return {"filename": file, "line": line, "name": name}


def snapshot(path: Path, segments: Sequence[Any], history: Sequence[Any] = (), expandable: bool = False) -> Path:
    """A snapshot of device 0."""
    content = {"segments": list(segments), "device_traces": [list(history)],
               "allocator_settings": {"expandable_segments": expandable}, "external_annotations": []}  # fmt: skip
    path.write_bytes(pickle.dumps(content))
    return path


def answers_or_says(call: Callable[[], object]) -> None:
    """Calls it: it must answer, or refuse its input in one line."""
    said = ""
    try:
        call()
    except InputError as error:
        said = str(error)
    assert "\n" not in said


def says_lines(call: Callable[[], object], most: int) -> None:
    """Calls it: it must answer, or refuse its input in at most so many lines."""
    said = ""
    try:
        call()
    except InputError as error:
        said = str(error)
    assert said.count("\n") < most
