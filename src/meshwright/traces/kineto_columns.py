"""The events of one trace as columns, appended block by block: what is not used is dropped at once."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind
from meshwright.traces.classify import device_kind, host_cause, host_communication, on_device
from meshwright.traces.document import EXACT_FLOATS, Args, Event

Integers = NDArray[np.int64]

STEP = re.compile(r"ProfilerStep#(\d+)")
HOST_OPERATIONS = ("cpu_op", "operator")
ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
_DTYPE_BYTES = {
    "double": 8, "float64": 8, "long": 8, "int64": 8, "float": 4, "float32": 4, "int": 4, "int32": 4, "half": 2,
    "float16": 2, "bfloat16": 2, "short": 2, "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_DEVICE, _ANNOTATION, _DEVICE_ANNOTATION, _LAUNCH, _OPERATION, _NONE = range(6)

_NO_ARGS = Args()

ROW = ("start", "end", "kind", "name", "stream", "group", "sequence", "size", "correlation")


class _Codes(dict[Any, int]):
    """What is done with events of a category, however it is spelled."""

    def __missing__(self, category: Any) -> int:
        lower = category.lower() if isinstance(category, str) else ""
        code = (
            _DEVICE if on_device(lower)
            else _DEVICE_ANNOTATION if lower == "gpu_user_annotation"
            else _ANNOTATION if lower in ANNOTATIONS
            else _LAUNCH if lower in LAUNCHES
            else _OPERATION if lower in HOST_OPERATIONS else _NONE
        )  # fmt: skip
        self[category] = code
        return code


class _Causes(dict[Any, bool]):
    """Whether a host call or operation is one that keeps the host from launching work, by its name."""

    def __missing__(self, name: Any) -> bool:
        self[name] = isinstance(name, str) and host_cause(name) is not None
        return self[name]


class Table:
    """Rows of integers in the making, an array a block."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._done: list[Integers] = []

    def add(self, *columns: Integers | Sequence[int]) -> None:
        """Add one block's columns, all of the same length."""
        if len(columns[0]):
            rows = np.empty((len(columns[0]), self.width), np.int64)
            for k, column in enumerate(columns):
                rows[:, k] = column
            self._done.append(rows)

    def array(self) -> Integers:
        """All rows, [rows, width]; the table is empty afterwards."""
        rows = np.concatenate(self._done) if self._done else np.empty((0, self.width), np.int64)
        self._done = []
        return rows


class Columns:
    """Everything kept of one trace.

    `device` has the columns of ROW; `launches` (correlation, start, end, thread); `host` and `operations` (start, end,
    name, thread); `calls` (start, end, name, thread, group, sequence, size): operations that describe a collective.
    Times are nanoseconds without the file's base. A group whose members the trace does not say stays -1: equal names
    of groups mean nothing over ranks.
    """

    def __init__(self, cpu_only: bool) -> None:
        self.device, self.launches, self.calls = Table(len(ROW)), Table(4), Table(7)
        self.host, self.operations = Table(4), Table(4)
        self.steps: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}  # by "marked on the device"
        self.names: dict[str, int] = {}
        self.groups: dict[tuple[int, ...], int] = {}
        self.uses: dict[int, str] = {}  # what a group is for, by its id
        self.unclassified: Counter[str] = Counter()
        self.devices: set[int] = set()
        self.cpu_only = cpu_only
        self.negative = 0
        self.gpu_seen = False
        self.any_phase = False
        self._codes = _Codes()
        self._causes = _Causes()
        self._kinds: dict[tuple[Any, Any], Kind] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._group_ids: dict[tuple[str, str], int] = {}

    def know_groups(self, config: Any) -> None:
        """Members of process groups by name, from the header."""
        for entry in config if isinstance(config, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("ranks"), list):
                ranks = tuple(rank for rank in entry["ranks"] if isinstance(rank, int))
                self._members[str(entry.get("pg_name"))] = ranks

    def used(self, events: Sequence[Event]) -> list[Event]:
        """The events of a block that matter."""
        codes, causes, everything = self._codes, self._causes, self.cpu_only
        self.any_phase = self.any_phase or any(event.ph for event in events)
        return [
            event
            for event in events
            if (code := codes[event.cat]) != _NONE
            and event.ph == "X"
            and (code != _OPERATION or everything or causes[event.name] or (event.args and event.args.collective))
        ]

    @staticmethod
    def loses_nanoseconds(events: Sequence[Event]) -> bool:
        """Are there fractional times so large that a float rounds them?"""
        times = np.array([event.ts for event in events])
        return times.dtype == np.float64 and bool((times > EXACT_FLOATS).any())

    def append(self, events: Sequence[Event]) -> None:
        """Add the used events of one block."""
        if not events:
            return
        codes = np.array([self._codes[event.cat] for event in events])
        starts, lengths = nanoseconds([event.ts for event in events]), nanoseconds([event.dur for event in events])
        self.negative += int((lengths < 0).sum())
        ends = starts + np.maximum(lengths, 0)

        def those(chosen: NDArray[np.bool_]) -> tuple[list[Event], Integers, Integers]:
            return [events[k] for k in np.flatnonzero(chosen).tolist()], starts[chosen], ends[chosen]

        if np.isin(codes, (_DEVICE, _LAUNCH)).any():
            self._on_gpu()
        self._device(*those(codes == _DEVICE))
        self._launches(*those(codes == _LAUNCH))
        self._operations(*those(codes == _OPERATION))
        self._annotations(*those(codes == _ANNOTATION), on_device=False)
        self._annotations(*those(codes == _DEVICE_ANNOTATION), on_device=True)

    def _name(self, name: Any) -> int:
        return self.names.setdefault(str(name), len(self.names))

    def _named(self, events: Sequence[Event]) -> list[int]:
        return [self._name(event.name) for event in events]

    def _device(self, events: list[Event], starts: Integers, ends: Integers) -> None:
        args = [event.args or _NO_ARGS for event in events]
        streams = numbers([event.tid if a.stream is None else a.stream for event, a in zip(events, args, strict=True)])
        devices = numbers([a.device for a in args])
        self.devices.update(np.unique(devices).tolist())
        sizes, names, kinds = numbers([a.bytes for a in args]), self._named(events), [0] * len(events)
        groups, sequences = np.full(len(events), -1, np.int64), np.full(len(events), -1, np.int64)
        for k, (event, a) in enumerate(zip(events, args, strict=True)):
            if a.collective:
                kinds[k], names[k] = Kind.COMMUNICATION, self._name(a.collective)
                groups[k], sequences[k], sizes[k] = self._collective(a)
                continue
            key = event.cat, event.name
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = device_kind((event.cat or "").lower(), str(event.name), None)
            kinds[k] = kind
            if kind is Kind.UNCLASSIFIED:
                self.unclassified[str(event.name)] += 1
        streams += 10_000 * np.maximum(devices, 0)  # streams are numbered anew on each device
        correlation = numbers([a.correlation for a in args])
        self.device.add(starts, ends, kinds, names, streams, groups, sequences, sizes, correlation)

    def _launches(self, events: list[Event], starts: Integers, ends: Integers) -> None:
        correlation = numbers([event.args.correlation if event.args else None for event in events])
        self.launches.add(correlation, starts, ends, numbers([event.tid for event in events]))
        busy = np.array([self._causes[event.name] for event in events], np.bool_)
        self._host([event for event in events if self._causes[event.name]], starts[busy], ends[busy])

    def _host(self, events: list[Event], starts: Integers, ends: Integers) -> None:
        self.host.add(starts, ends, self._named(events), numbers([event.tid for event in events]))

    def _operations(self, events: list[Event], starts: Integers, ends: Integers) -> None:
        threads = numbers([event.tid for event in events])
        if self.cpu_only:
            self.operations.add(starts, ends, self._named(events), threads)
        for k, event in enumerate(events):
            if event.args and event.args.collective:
                about = self._name(event.args.collective), int(threads[k]), *self._collective(event.args)
                self.calls.add(starts[k : k + 1], ends[k : k + 1], *([value] for value in about))
        busy = np.array([self._causes[event.name] for event in events], np.bool_)
        self._host([event for event in events if self._causes[event.name]], starts[busy], ends[busy])

    def _annotations(self, events: list[Event], starts: Integers, ends: Integers, *, on_device: bool) -> None:
        for event, start, end in zip(events, starts.tolist(), ends.tolist(), strict=True):
            if match := STEP.fullmatch(str(event.name)):
                self.steps[on_device].append((start, end, int(match.group(1)[:9])))
        if on_device or not events:
            return
        if any(str(event.name).startswith("nccl:") for event in events):
            self._on_gpu()
        names, threads = np.array(self._named(events)), numbers([event.tid for event in events])
        work = np.array([self.cpu_only and host_communication(str(event.name)) for event in events])
        for table, chosen in ((self.operations, work), (self.host, ~work)):
            table.add(starts[chosen], ends[chosen], names[chosen], threads[chosen])

    def _on_gpu(self) -> None:
        self.gpu_seen = True
        if self.cpu_only:
            self.cpu_only, self.operations = False, Table(4)

    def _collective(self, args: Args) -> tuple[int, int, int]:
        """Group, sequence number and bytes of a collective."""
        key = (str(args.group_ranks), str(args.group_name))
        group = self._group_ids.get(key)
        if group is None:
            members = _ranks(args.group_ranks) or self._members.get(key[1], ())
            group = self.groups.setdefault(members, len(self.groups)) if members else -1
            self._group_ids[key] = group
            if args.group_use and group >= 0:
                self.uses[group] = str(args.group_use)
        each = _DTYPE_BYTES.get(str(args.dtype).lower().removeprefix("c10::").removeprefix("torch."))
        elements = max(number(args.in_elements), number(args.out_elements))
        return group, number(args.seq), -1 if each is None or elements < 0 else elements * each


def number(value: Any) -> int:
    """An integer, also where the writer printed it as text; -1 for anything else."""
    if type(value) is int:
        return value if -(2**62) < value < 2**62 else -1
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19 else -1


def numbers(values: Sequence[Any]) -> Integers:
    """`number` of each value."""
    array = np.array(values) if len(values) else np.empty(0, np.int64)
    if array.ndim == 1 and array.dtype == np.int64:
        whole: Integers = array
        return whole
    return np.fromiter((number(value) for value in values), np.int64, len(values))


_FAR = 9_000_000_000_000_000  # µs: beyond it nanoseconds leave 64 bits


def nanoseconds(microseconds: Sequence[int | float | Decimal]) -> Integers:
    """Times in whole nanoseconds; 0 for what lies beyond 64 bits."""
    array = np.array(microseconds)
    if array.dtype == np.int64 and not (np.abs(array) >= _FAR).any():
        exact: Integers = array * 1000
        return exact
    if array.dtype == np.float64 and not (np.abs(array) >= EXACT_FLOATS).any():
        whole: Integers = np.rint(array * 1000).astype(np.int64)
        return whole
    return np.fromiter((_ns(value) for value in microseconds), np.int64, len(microseconds))


def _ns(microseconds: int | float | Decimal) -> int:
    if not -_FAR < microseconds < _FAR:
        return 0
    return microseconds * 1000 if isinstance(microseconds, int) else round(microseconds * 1000)


def _ranks(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:  # long lists are abbreviated
            return ()
    return tuple(value) if isinstance(value, list) and value and all(type(rank) is int for rank in value) else ()
