"""CUDA memory snapshots (`torch.cuda.memory._snapshot`) as values: segments, blocks and the history of allocations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.traces.opening import beginning, text_of, whole
from meshwright.traces.safe_pickle import read_plain_pickle

Frames = tuple[str, ...]
"""Python frames, innermost first, as "file.py:12 function"."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment. `live` is true while a tensor holds it or a stream may still use it."""

    address: int
    size: int
    requested: int
    live: bool
    frames: Frames


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the allocator got from the driver in one piece, cut into blocks that fill it."""

    size: int
    active: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the history: alloc, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom."""

    action: str
    address: int
    size: int
    time_us: int
    frames: Frames


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One device of a snapshot. `history` is oldest first and empty where recording was never switched on."""

    device: int
    segments: tuple[Segment, ...]
    history: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One file, with the allocator's settings and what had to be left out."""

    path: Path
    devices: tuple[DeviceSnapshot, ...]
    settings: Mapping[str, object]
    notes: tuple[str, ...]


ACTIONS = ("alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom")
_DEEP = 64  # frames of one stack that are looked at


class _Reader:
    """Turns plain values into typed ones, counting what is malformed; stacks shared by entries are turned once."""

    def __init__(self) -> None:
        self.odd = 0
        self.stacks: dict[int, Frames] = {}

    def number(self, values: Mapping[str, Any], key: str, default: int = 0) -> int:
        value = values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
            self.odd += value is not None
            return default
        return value

    def frames(self, values: Mapping[str, Any]) -> Frames:
        given = values.get("frames")
        if not isinstance(given, list) or not given:
            return ()
        known = self.stacks.get(id(given))
        if known is None:
            known = self.stacks[id(given)] = tuple(
                f"{_short(frame.get('filename'))}:{frame.get('line')} {frame.get('name')}"[:160]
                for frame in given[:_DEEP]
                if isinstance(frame, dict) and str(frame.get("filename")).endswith(".py")
            )
        return known

    def mappings(self, value: object) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            self.odd += value is not None
            return []
        good = [one for one in value if isinstance(one, dict)]
        self.odd += len(value) - len(good)
        return good


def _short(filename: object) -> str:
    return "/".join(str(filename).split("/")[-2:])


def read_snapshot(path: Path | str) -> Snapshot:
    """Read one snapshot, a pickle or the same as JSON.

    Raises InputError when the file cannot be read, is not plain values, or is no snapshot.
    """
    path = Path(path)
    head, size = beginning(path)
    if head[:1] == b"{":
        try:
            found: object = json.loads(text_of(path))
        except (ValueError, RecursionError) as error:
            raise bad_input(f"not JSON that can be read ({type(error).__name__})", file=str(path)) from error
    else:
        found = read_plain_pickle(path)
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise bad_input("a pickle of something else: no memory snapshot (no segments in it)", file=str(path))
    content = len(whole(path)) if size < len(head) else size
    reader = _Reader()
    segments = reader.mappings(found["segments"])
    traces = found.get("device_traces")
    histories = traces if isinstance(traces, list) else []
    # Entries may be shared by reference; a real snapshot still needs more bytes than it has entries.
    if sum(len(one.get("blocks") or ()) if isinstance(one.get("blocks"), list) else 0 for one in segments) > content:
        raise bad_input("no real snapshot: it repeats its blocks more often than it has bytes", file=str(path))
    by_device: dict[int, list[Segment]] = {}
    for segment in segments:
        by_device.setdefault(reader.number(segment, "device"), []).append(_segment(segment, reader))
    events = {device: _history(reader.mappings(h), reader) for device, h in enumerate(histories[:4096]) if h}
    devices = tuple(
        DeviceSnapshot(device, tuple(by_device.get(device, ())), tuple(events.get(device, ())))
        for device in sorted(by_device.keys() | events.keys())
    )
    settings = found.get("allocator_settings")
    notes = (f"{reader.odd} malformed values in it were left out",) if reader.odd else ()
    return Snapshot(path, devices, settings if isinstance(settings, dict) else {}, notes)


def _segment(values: dict[str, Any], reader: _Reader) -> Segment:
    blocks = tuple(
        Block(
            reader.number(block, "address"), size := reader.number(block, "size"),
            reader.number(block, "requested_size", size), str(block.get("state", "")).startswith("active"),
            reader.frames(block),
        )
        for block in reader.mappings(values.get("blocks"))
    )  # fmt: skip
    live = sum(block.size for block in blocks if block.live)
    return Segment(reader.number(values, "total_size"), reader.number(values, "active_size", live), blocks)


def _history(entries: Sequence[dict[str, Any]], reader: _Reader) -> list[Event]:
    return [
        Event(
            entry["action"], reader.number(entry, "addr"), reader.number(entry, "size"),
            reader.number(entry, "time_us"), reader.frames(entry),
        )
        for entry in entries
        if entry.get("action") in ACTIONS
    ]  # fmt: skip
