"""One trace file, read: its columns and who wrote it; what readers pass on and caches keep."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.timeline.columns import Kind
from meshwright.traces.events import host_rows, linked, with_calls
from meshwright.traces.kineto_blocks import EventStream
from meshwright.traces.kineto_columns import ROW, Columns, number

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """One file's events: `rows` [spans, 8] are start, end, kind, name, stream, group, sequence, size; `launch`
    [spans, 2] is when each was launched (start and end of the call), -1 where that was not recorded.

    Times are nanoseconds; `base_ns` is to be added to all (0: the file says none). `steps` [steps, 3] are start, end
    and number of the profiler's steps; `by_launch` says that they are the host's, so that a span belongs to the step
    it was launched in. `uses` says what each group
    (by its id) is for, where the trace does.
    """

    rows: Integers
    launch: Integers
    steps: Integers
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    by_launch: bool
    uses: Mapping[int, str]
    rank: int | None
    world_size: int | None
    base_ns: int
    seen: int
    remarks: tuple[str, ...]
    notes: tuple[str, ...]
    unclassified: Mapping[str, int]


def read_part(path: Path) -> Part:
    """Read one trace file (.json or .json.gz), in blocks. Raises InputError when it is not a trace."""
    stream = EventStream(path)
    columns: Columns | None = None
    headed = None
    for block in stream.blocks():
        if columns is None:
            info = stream.header.distributed
            backend = str(info.backend) if info else ""
            columns = Columns(cpu_only=not stream.header.devices and "nccl" not in backend)
        if stream.header is not headed:
            headed = stream.header
            columns.know_groups(headed.distributed.pg_config if headed.distributed else None)
        used = columns.used(block)
        if columns.loses_nanoseconds(used):
            used = columns.used(stream.exactly())
        columns.append(used)
    if columns is None or (stream.seen and not columns.any_phase):
        rule = "JSON of something else: none of its objects is an event of a torch.profiler trace"
        raise bad_input(rule, file=str(path), legal="this version reads torch.profiler traces and its own runs")
    return _part(stream, columns)


def _part(stream: EventStream, columns: Columns) -> Part:
    device, launches = columns.device.array(), columns.launches.array()
    host, remarks = columns.host.array(), []
    rows, launch = device[:, : len(ROW) - 1], np.full((len(device), 2), -1, np.int64)
    if len(device):
        launch = linked(device[:, -1], launches)
        kernels = np.isin(device[:, 2], (Kind.COMPUTE, Kind.COMMUNICATION, Kind.UNCLASSIFIED))
        unlinked = int((kernels & (launch[:, 0] < 0)).sum())
        if unlinked:
            remarks.append(
                f"{unlinked} of {int(kernels.sum())} kernels have no launch record (launched before recording began, "
                "or launches were not recorded); all are counted"
            )
        rows = with_calls(rows, device[:, -1], launches, columns.calls.array())
    elif columns.gpu_seen or not columns.cpu_only:
        remarks.append("no device activity was recorded, only the host's: this rank is left out")
        host = host[:0]
    else:
        rows = host_rows(columns.operations.array(), tuple(columns.names))
        launch = np.full((len(rows), 2), -1, np.int64)
        remarks.append(
            "a CPU rank: its operations are counted as compute, its collectives as communication"
            if len(rows)
            else "no operation and no device activity was recorded: this rank is left out"
        )
    if len(rows) and len(host):
        spans = np.full((len(host), len(ROW) - 1), -1, np.int64)
        spans[:, (0, 1, 3, 4)] = host
        spans[:, 2] = Kind.HOST
        rows = np.concatenate([rows, spans])
        launch = np.concatenate([launch, np.full((len(host), 2), -1, np.int64)])
    if columns.negative:
        remarks.append(f"{columns.negative} events of negative duration were counted as empty")
    marked, by_launch = _marks(columns, bool(len(device)))
    info = stream.header.distributed
    return Part(
        rows, launch, np.array(sorted(marked), np.int64).reshape(-1, 3), tuple(columns.names), tuple(columns.groups),
        by_launch, columns.uses, _known(info.rank) if info else None, _known(info.world_size) if info else None,
        max(0, number(stream.header.base_ns)),
        stream.seen, tuple(remarks), tuple(stream.notes), Counter(columns.unclassified),
    )  # fmt: skip


def _marks(columns: Columns, on_device: bool) -> tuple[list[tuple[int, int, int]], bool]:
    """The profiler's steps and whether they are the host's: its own marks where the device has none that cover it."""
    device, host = columns.steps[True], columns.steps[False]
    long = sum(end - start for start, end, _ in device), sum(end - start for start, end, _ in host)
    if on_device and device and 2 * long[0] >= long[1]:
        return device, False
    return host, on_device


def _known(value: object) -> int | None:
    """A rank or a number of ranks, also where it is written as text."""
    whole = number(value)
    return whole if whole >= 0 else None


def save_part(part: Part, path: Path) -> None:
    """Write a part; the file appears whole or not at all."""
    header = {
        "by_launch": part.by_launch, "names": part.names, "groups": part.groups, "uses": list(part.uses.items()),
        "rank": part.rank,
        "world_size": part.world_size, "base_ns": part.base_ns, "seen": part.seen, "remarks": part.remarks,
        "notes": part.notes, "unclassified": part.unclassified,
    }  # fmt: skip
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as stream:
        np.savez(stream, header=np.array(json.dumps(header)), rows=part.rows, launch=part.launch, steps=part.steps)
    partial.replace(path)


def load_part(path: Path) -> Part | None:
    """A part written by `save_part`; None when there is none or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as data:
            header = json.loads(str(data["header"]))
            rows, launch, steps = data["rows"], data["launch"], data["steps"]
        return Part(
            rows, launch, steps, tuple(header["names"]), tuple(tuple(group) for group in header["groups"]),
            header["by_launch"], dict(header["uses"]), header["rank"], header["world_size"], header["base_ns"],
            header["seen"], tuple(header["remarks"]), tuple(header["notes"]), header["unclassified"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, TypeError):
        return None
