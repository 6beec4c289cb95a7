"""The events of one rank's trace as a Timeline: device activity, or a CPU rank's own work."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind, Timeline, build
from meshwright.timeline.intervals import subtract
from meshwright.traces.classify import device_kind, host_communication, on_device
from meshwright.traces.document import Document, Event

_STEP = re.compile(r"ProfilerStep#(\d+)")
_HOST_OPERATIONS = ("cpu_op", "operator")
_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime")
_DTYPE_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4, "half": 2,
    "float16": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


class _Rows:
    """Columns in the making."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.names: dict[str, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.rows: list[tuple[int, int, int, int, int, int, int, int]] = []

    def add(
        self, start: int, end: int, kind: Kind, name: str, stream: int, group: tuple[int, ...] = (), seq: int = -1,
        size: int = -1,
    ) -> None:  # fmt: skip
        group_id = self.groups.setdefault(group, len(self.groups)) if group else -1
        name_id = self.names.setdefault(name, len(self.names))
        self.rows.append((start, max(start, end), int(kind), name_id, stream, group_id, seq, size))

    def timeline(self, steps: list[tuple[int, int, int]]) -> Timeline:
        table = np.array(self.rows, np.int64).reshape(-1, 8)
        names = ("start", "end", "kind", "name", "stream", "group", "sequence", "size")
        columns: dict[str, Any] = {name: table[:, k] for k, name in enumerate(names)}
        columns["rank"] = np.full(len(table), self.rank)
        columns["step"] = _steps(table[:, 0], steps)
        recorded = (self.rank,) if self.rows else ()
        return build(
            columns, names=tuple(self.names), groups=tuple(self.groups), recorded=recorded, mode="measured"
        )  # fmt: skip


def rank_timeline(rank: int, document: Document) -> tuple[Timeline, list[str], Counter[str]]:
    """One rank's spans, remarks about them, and the names of unclassified kernels with their counts.

    Device events are the rank's work where there are any. A trace without them is a CPU rank's only when its job has
    no device (gloo, no device properties): its operations are then the work, less the time in collectives. Otherwise
    nothing is recorded of that rank, and a remark says so.
    """
    rows = _Rows(rank)
    device = [event for event in document.events if event.ph == "X" and on_device(_category(event))]
    remarks: list[str] = []
    unknown: Counter[str] = Counter()
    if device:
        _device_rows(rows, document, device, unknown)
        launched = {_number(e.args.correlation) for e in document.events if e.args and _category(e) in _LAUNCHES}
        kernels = [event for event in device if _category(event) == "kernel"]
        unlinked = sum(1 for e in kernels if e.args is None or _number(e.args.correlation) not in launched)
        if unlinked:
            remarks.append(
                f"{unlinked} of {len(kernels)} kernels have no launch record (launched before recording began, or "
                "launches were not recorded); all are counted"
            )
    elif _has_device(document):
        remarks.append("no device activity was recorded, only the host's: this rank is left out")
        return rows.timeline([]), remarks, unknown
    else:
        _host_rows(rows, document)
        if rows.rows:
            remarks.append("a CPU rank: its operations are counted as compute, its collectives as communication")
        else:
            remarks.append("no operation and no device activity was recorded: this rank is left out")
    steps = _annotations(rows, document, on_devices=bool(device))
    return rows.timeline(steps), remarks, unknown


def _category(event: Event) -> str:
    return (event.cat or "").lower()


def _number(value: Any) -> int:
    return value if isinstance(value, int) else int(value) if isinstance(value, str) and value.isdigit() else -1


def _ns(microseconds: int | float | Decimal) -> int:
    return microseconds * 1000 if isinstance(microseconds, int) else round(microseconds * 1000)


def _span(event: Event, base: int) -> tuple[int, int]:
    start = base + _ns(event.ts)
    return start, start + _ns(event.dur)


def _has_device(document: Document) -> bool:
    backend = (document.distributed.backend if document.distributed else None) or ""
    if document.devices or "nccl" in backend:
        return True
    return any(_category(e) in _LAUNCHES or str(e.name).startswith("nccl:") for e in document.events)


def _device_rows(rows: _Rows, document: Document, device: list[Event], unknown: Counter[str]) -> None:
    members = _group_members(document)
    many = len({_number(e.args.device) for e in device if e.args}) > 1
    for event in device:
        args = event.args
        name = str(event.name)
        collective = str(args.collective) if args and args.collective else None
        kind = device_kind(_category(event), name, collective)
        if kind is Kind.UNCLASSIFIED:
            unknown[name] += 1
        group: tuple[int, ...] = ()
        stream, seq, size = _number(event.tid), -1, -1
        if args:
            stream = _number(args.stream) if args.stream is not None else stream
            if many:  # streams are numbered anew on each device
                stream += 10_000 * max(0, _number(args.device))
            seq, size = _number(args.seq), _number(args.bytes)
            if collective:
                group, size = (
                    _group(args.group_ranks, str(args.group_name), members),
                    _bytes(args.in_elements, args.dtype),
                )
        rows.add(*_span(event, document.base_ns), kind, collective or name, stream, group, seq, size)


def _bytes(elements: Any, dtype: Any) -> int:
    each = _DTYPE_BYTES.get(str(dtype).lower().removeprefix("c10::").removeprefix("torch."))
    count = _number(elements)
    return -1 if each is None or count < 0 else count * each


def _group(ranks: Any, name: str, members: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks)
        except ValueError:  # long lists are abbreviated
            ranks = None
    if isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks):
        return tuple(ranks)
    return members.get(name, ())


def _group_members(document: Document) -> dict[str, tuple[int, ...]]:
    config = document.distributed.pg_config if document.distributed else None
    known = {}
    for entry in config if isinstance(config, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("ranks"), list):
            known[str(entry.get("pg_name"))] = tuple(rank for rank in entry["ranks"] if isinstance(rank, int))
    return known


def _host_rows(rows: _Rows, document: Document) -> None:
    """A CPU rank: outermost operations of each thread as compute, less what lies inside a collective there."""
    threads: dict[int, dict[bool, list[tuple[int, int, str]]]] = {}
    for event in document.events:
        category = _category(event)
        if event.ph != "X" or category not in (*_HOST_OPERATIONS, *_ANNOTATIONS):
            continue
        name = str(event.name)
        communicates = host_communication(name)
        if category in _ANNOTATIONS and not communicates:
            continue
        spans = threads.setdefault(_number(event.tid), {True: [], False: []})
        spans[communicates].append((*_span(event, document.base_ns), name))
    for thread, spans in threads.items():
        for start, end, name in _outermost(spans[True]):
            rows.add(start, end, Kind.COMMUNICATION, name, thread)
        collectives = _arrays(spans[True])
        for start, end, name in _outermost(spans[False]):
            if not np.any((collectives[0] < end) & (collectives[1] > start)):
                rows.add(start, end, Kind.COMPUTE, name, thread)
                continue
            left = subtract((np.array([start]), np.array([end])), collectives)
            for first, last in zip(left[0].tolist(), left[1].tolist(), strict=True):
                rows.add(first, last, Kind.COMPUTE, name, thread)


def _arrays(spans: list[tuple[int, int, str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array([s[0] for s in spans], np.int64), np.array([s[1] for s in spans], np.int64)


def _outermost(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The spans that lie inside no other, in order of time."""
    kept: list[tuple[int, int, str]] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not kept or span[1] > kept[-1][1]:
            kept.append(span)
    return kept


def _annotations(rows: _Rows, document: Document, on_devices: bool) -> list[tuple[int, int, int]]:
    """Add the annotations as HOST spans; the profiler's steps as (start, end, number), the device's own if marked."""
    steps: dict[str, list[tuple[int, int, int]]] = {category: [] for category in _ANNOTATIONS}
    for event in document.events:
        category, name = _category(event), str(event.name)
        if event.ph != "X" or category not in _ANNOTATIONS or (not on_devices and host_communication(name)):
            continue
        start, end = _span(event, document.base_ns)
        if match := _STEP.fullmatch(name):
            steps[category].append((start, end, int(match.group(1))))
        if category == "user_annotation":
            rows.add(start, end, Kind.HOST, name, _number(event.tid))
    chosen = steps["gpu_user_annotation"] if on_devices and steps["gpu_user_annotation"] else steps["user_annotation"]
    return sorted(chosen)


def _steps(starts: NDArray[np.int64], steps: list[tuple[int, int, int]]) -> NDArray[np.int32]:
    """The step in which each span starts; -1 outside all."""
    out = np.full(len(starts), -1, np.int32)
    if steps and len(starts):
        first, last, number = (np.array(column) for column in zip(*steps, strict=True))
        at = np.searchsorted(first, starts, side="right") - 1
        inside = (at >= 0) & (starts < last[np.maximum(at, 0)])
        out[inside] = number[at[inside]]
    return out
