"""Nsight Systems exports (.sqlite) as one Timeline. Tables and traps: the exporter's own documentation."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.timeline.columns import COLUMNS, Kind, Timeline, build, concatenate
from meshwright.traces.classify import device_kind
from meshwright.traces.nsight_ranges import nccl_calls, steps_of
from meshwright.traces.nsight_tables import SEEN, Export, open_export

_PREFIX = "CUPTI_ACTIVITY_KIND_"
_WORK = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_PID_SHIFT, _PID_MASK = 24, 0xFFFFFF


@dataclass(frozen=True)
class NsightTraces:
    """Exports as one timeline, one rank a GPU. `launched` is, for each span, when the host began to launch it, in the
    timeline's nanoseconds (the largest int64 where no launch was recorded); `tables` is what else each file says."""

    timeline: Timeline
    launched: NDArray[np.int64]
    notes: tuple[str, ...]
    tables: dict[str, dict[str, object]]


NEVER = int(np.iinfo(np.int64).max)
"""In `launched`: not recorded."""


def read_nsight(paths: Sequence[Path | str]) -> NsightTraces:
    """Read exports. A rank is a GPU, or a (process, GPU) pair where several processes call their GPU by one number.

    Times of several files are put on one clock by the UTC time of their sessions where it is recorded.
    Raises InputError when a file cannot be read, or none of them holds GPU work.
    """
    notes: list[str] = []
    parts: list[Timeline] = []
    launches: list[NDArray[np.int64]] = []
    tables: dict[str, dict[str, object]] = {}
    taken = 0
    for path in map(Path, paths):
        export = open_export(path)
        with closing(export.connection):
            base = _session_ns(export) if len(paths) > 1 else 0
            line, launched, about = _one(export, taken, notes)
        if base is None:
            notes.append(f"{path.name}: the session's UTC time is not recorded: its clock may differ from the others'")
        shift = base or 0
        columns = {column: getattr(line, column) for column in COLUMNS}
        columns |= {"start": line.start + shift, "end": line.end + shift}
        parts.append(
            build(columns, names=line.names, groups=line.groups, recorded=line.recorded, mode="measured")
        )  # fmt: skip
        launches.append(np.where(launched == NEVER, NEVER, launched + shift))
        tables[str(path)] = about
        taken += len(line.recorded)
    whole = concatenate(parts)
    if not len(whole):
        raise bad_input("no GPU work was captured in it", file=", ".join(map(str, paths)))
    first = whole.start.min()
    np.subtract(whole.start, first, out=whole.start)
    np.subtract(whole.end, first, out=whole.end)
    launched = np.concatenate(launches)
    return NsightTraces(whole, np.where(launched == NEVER, NEVER, launched - first), tuple(notes), tables)


def _one(export: Export, taken: int, notes: list[str]) -> tuple[Timeline, NDArray[np.int64], dict[str, object]]:
    name = export.path.name
    _check_version(export, notes)
    strings = export.strings()
    rows, names, kinds = _device_rows(export, strings, notes)
    if not len(rows):
        notes.append(f"{name}: no kernel, copy or memset was captured")
        line = build({c: [] for c in ("rank", "start", "end", "kind", "name")}, names=(), mode="measured", recorded=())
        return line, np.empty(0, np.int64), {"schema": export.version}
    kept = (rows[:, 1] >= rows[:, 0]) & (rows[:, 0] >= 0)
    if not kept.all():
        notes.append(f"{name}: {int((~kept).sum())} spans that end before they start, or have no time, were left out")
        rows, kinds, names = rows[kept], kinds[kept], names[kept]
    ranks, who = _ranks(rows, taken)
    if len(who) != len({device for _, device in who}):
        shown = ", ".join(f"rank {taken + k}: process {pid}" for k, (pid, _) in enumerate(who[:16]))
        notes.append(f"{name}: several processes use one GPU number, each is shown as a rank of its own ({shown})")
    elif taken:
        notes.append(f"{name}: its GPUs are shown as ranks {taken}-{taken + len(who) - 1}, in the order of the files")
    _, streams = np.unique(rows[:, [5, 2, 3]], axis=0, return_inverse=True)
    launched = _launch_times(export, rows)
    if launched is None:
        notes.append(f"{name}: launches were not captured: host causes cannot be told")
        launched = np.full(len(rows), NEVER)
    elif missing := int((launched == NEVER).sum()):
        notes.append(f"{name}: {missing} of {len(rows)} device spans have no launch record; all are counted")
    texts = tuple(dict.fromkeys(names.tolist()))
    ids = {text: at for at, text in enumerate(texts)}
    begun = np.where(launched == NEVER, rows[:, 0], launched)
    columns: dict[str, Sequence[int] | NDArray[np.generic]] = {
        "rank": ranks, "stream": streams.reshape(-1), "start": rows[:, 0], "end": rows[:, 1], "kind": kinds,
        "name": np.array([ids[text] for text in names.tolist()], np.int32), "size": rows[:, 6],
        "step": steps_of(export, strings, begun, rows[:, 5]),
    }  # fmt: skip
    about: dict[str, object] = {"schema": export.version or "not stated", "gpus": [device for _, device in who]}
    if calls := nccl_calls(export, strings):
        about["nccl_calls"] = dict(calls)
    return build(columns, names=texts, mode="measured"), launched, about


def _check_version(export: Export, notes: list[str]) -> None:
    if not export.version:
        notes.append(f"{export.path.name}: the export does not state its schema version")
        return
    parts = [int(part) for part in export.version.split(".") if part.isdigit()]
    if tuple(parts[:2]) > SEEN or parts[:1] < [3]:
        notes.append(
            f"{export.path.name}: schema {export.version} is not one that was tried (3.x up to {SEEN[0]}.{SEEN[1]}): "
            "columns are read by name, and what was renamed is missing"
        )


def _device_rows(
    export: Export, strings: dict[int, str], notes: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.object_], NDArray[np.int8]]:
    """[spans, start end device stream correlation process bytes], names and kinds of kernels, copies and memsets."""
    found: list[NDArray[np.int64]] = []
    names: list[str] = []
    kinds: list[int] = []
    kernels = export.numbers(_PREFIX + "KERNEL", (*_WORK, "demangledName", "shortName"))
    if kernels is None:
        notes.append(f"{export.path.name}: kernels were not captured")
    elif len(kernels):
        found.append(np.column_stack([kernels[:, :6], np.full(len(kernels), -1)]))
        texts = [strings.get(a) or strings.get(b) or "" for a, b in kernels[:, 6:8].tolist()]
        counts = Counter(texts)
        known = {text: int(device_kind("kernel", text, None)) for text in counts}
        names += texts
        kinds += [known[text] for text in texts]
        for text in (t for t, kind in known.items() if kind == Kind.UNCLASSIFIED):
            notes.append(
                f"unclassified: {counts[text]} kernels named {text[:120]!r} sound like communication and are on no list"
            )
    labels = export.labels("ENUM_CUDA_MEMCPY_OPER")
    for table, what in (("MEMCPY", "copy"), ("MEMSET", "memset")):
        rows = export.numbers(_PREFIX + table, (*_WORK, "bytes", "copyKind"))
        if rows is not None and len(rows):
            found.append(rows[:, :7])
            names += [f"{what} {labels.get(kind, '')}".strip() for kind in rows[:, 7].tolist()]
            kinds += [int(Kind.COPY)] * len(rows)
    whole = np.concatenate(found) if found else np.empty((0, 7), np.int64)
    return whole, np.array(names, object), np.array(kinds, np.int8)


def _ranks(rows: NDArray[np.int64], taken: int) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
    """The rank of each span, and (process, GPU) of each rank. A GPU's own number where each has one process."""
    pairs, which = np.unique(rows[:, [5, 2]], axis=0, return_inverse=True)
    who = [((pid >> _PID_SHIFT) & _PID_MASK if pid >= 0 else -1, device) for pid, device in pairs.tolist()]
    devices = [device for _, device in who]
    plain = not taken and len(set(devices)) == len(devices) and min(devices) >= 0
    numbers = np.array(devices if plain else range(taken, taken + len(who)), np.int32)
    return numbers[which.reshape(-1)], who


def _launch_times(export: Export, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """When the call that launched each span began: joined by correlation number and process."""
    calls = export.numbers(_PREFIX + "RUNTIME", ("start", "correlationId", "globalTid"))
    if calls is None or not len(calls):
        return None
    by_process = bool((rows[:, 5] >= 0).all())
    pids = (calls[:, 2] >> _PID_SHIFT) & _PID_MASK if by_process else np.zeros(len(calls), np.int64)
    own = (rows[:, 5] >> _PID_SHIFT) & _PID_MASK if by_process else np.zeros(len(rows), np.int64)
    at = {(pid, number): start for pid, number, start in zip(pids.tolist(), calls[:, 1].tolist(), calls[:, 0].tolist(),
                                                              strict=True)}  # fmt: skip
    return np.array([at.get(key, NEVER) for key in zip(own.tolist(), rows[:, 4].tolist(), strict=True)], np.int64)


def _session_ns(export: Export) -> int | None:
    rows = export.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    return None if rows is None or not len(rows) or rows[0, 0] < 0 else int(rows[0, 0])
