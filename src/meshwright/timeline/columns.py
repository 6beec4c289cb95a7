"""The Timeline: what every rank did when, as NumPy columns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.figures import Mode


class Kind(IntEnum):
    """What a span is. Only COMPUTE, COMMUNICATION and COPY occupy a device; HOST spans are the host's own time."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    HOST = 3
    UNCLASSIFIED = 4


class Action(IntEnum):
    """The pipeline action a compute span belongs to; NONE outside a pipeline action."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    INPUT_BACKWARD = 3
    WEIGHT_BACKWARD = 4
    OPTIMIZER = 5


_DTYPES = {
    "rank": np.int32, "stream": np.int32, "start": np.int64, "end": np.int64, "kind": np.int8, "action": np.int8,
    "name": np.int32, "group": np.int32, "sequence": np.int64, "size": np.int64, "stage": np.int32,
    "micro_batch": np.int32, "step": np.int32,
}  # fmt: skip
_MISSING = {
    "stream": 0, "action": 0, "group": -1, "sequence": -1, "size": -1, "stage": -1, "micro_batch": -1,
    "step": -1,
}  # fmt: skip

COLUMNS: tuple[str, ...] = tuple(_DTYPES)


@dataclass(frozen=True)
class Timeline:
    """Spans of all ranks, one array a column, all of the same length; -1 where a column does not apply.

    `start` and `end` are integer nanoseconds on one clock; `name` indexes `names`, `group` indexes `groups` (each
    the member ranks); `size` is bytes. `time_scale` is wall seconds a device second: K in dilated mode, else 1.
    `recorded` lists the ranks whose spans were recorded at all, so that absence is never read as idleness.
    """

    rank: NDArray[np.int32]
    stream: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    kind: NDArray[np.int8]
    action: NDArray[np.int8]
    name: NDArray[np.int32]
    group: NDArray[np.int32]
    sequence: NDArray[np.int64]
    size: NDArray[np.int64]
    stage: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    step: NDArray[np.int32]
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    recorded: tuple[int, ...]
    mode: Mode
    time_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.rank)

    def select(self, mask: NDArray[np.bool_]) -> Self:
        """The spans where `mask` is true; names, groups and mode stay."""
        columns = {name: getattr(self, name)[mask] for name in COLUMNS}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in COLUMNS}
        return type(self)(**columns, **rest)


def build(
    columns: dict[str, Sequence[int] | NDArray[np.generic]],
    *,
    names: Sequence[str],
    mode: Mode,
    groups: Sequence[Sequence[int]] = (),
    recorded: Sequence[int] | None = None,
    time_scale: float = 1.0,
) -> Timeline:
    """A Timeline from the columns at hand (rank, start, end, kind and name at least); the others read as missing.

    Raises ValueError when lengths differ, a span ends before it starts, or a column is unknown.
    """
    unknown = set(columns) - set(_DTYPES)
    if unknown:
        raise ValueError(f"unknown timeline columns {sorted(unknown)}")
    length = len(columns["rank"])
    arrays = {}
    for column, dtype in _DTYPES.items():
        given = columns.get(column)
        if given is None and column not in _MISSING:
            raise ValueError(f"timeline column {column!r} is required")
        array = np.full(length, _MISSING[column], dtype) if given is None else np.asarray(given, dtype)
        if len(array) != length:
            raise ValueError(f"timeline column {column!r} has {len(array)} entries, not {length}")
        arrays[column] = array
    if np.any(arrays["end"] < arrays["start"]):
        raise ValueError("a span ends before it starts")
    ranks = np.unique(arrays["rank"]).tolist() if recorded is None else recorded
    return Timeline(
        **arrays, names=tuple(names), groups=tuple(tuple(group) for group in groups), recorded=tuple(ranks),
        mode=mode, time_scale=time_scale,
    )  # fmt: skip


def concatenate(parts: Sequence[Timeline]) -> Timeline:
    """One timeline of several (one a rank, say): names and groups are merged. All must share mode and scale."""
    if not parts:
        raise ValueError("nothing to concatenate")
    if len({(part.mode, part.time_scale) for part in parts}) > 1:
        raise ValueError("timelines of different modes or time scales cannot be joined")
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    columns: dict[str, list[NDArray[np.generic]]] = {column: [] for column in COLUMNS}
    for part in parts:
        name_ids = np.array([names.setdefault(name, len(names)) for name in part.names] or [0], np.int32)
        group_ids = np.array([groups.setdefault(group, len(groups)) for group in part.groups] or [-1], np.int32)
        for column in COLUMNS:
            values = getattr(part, column)
            if column == "name":
                values = name_ids[values] if len(part.names) else values
            elif column == "group":
                values = np.where(values < 0, -1, group_ids[np.maximum(values, 0)])
            columns[column].append(values)
    recorded = sorted({rank for part in parts for rank in part.recorded})
    return build(
        {column: np.concatenate(values) for column, values in columns.items()},
        names=list(names), groups=list(groups), recorded=recorded, mode=parts[0].mode, time_scale=parts[0].time_scale,
    )  # fmt: skip
