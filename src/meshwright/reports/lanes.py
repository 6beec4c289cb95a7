"""One step of a timeline as lanes: which rank did what from when to when, in device milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Action, Kind, Timeline

FORWARD, BACKWARD, INPUT_BACKWARD, WEIGHT_BACKWARD = "forward", "backward", "input backward", "weight backward"
OPTIMIZER, OTHER, COMMUNICATION, COPY = "optimizer", "other compute", "communication", "copy"
UNCLASSIFIED = "unclassified"
CATEGORIES = (
    FORWARD, BACKWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, OPTIMIZER, OTHER, COMMUNICATION, COPY, UNCLASSIFIED,
)  # fmt: skip

_BY_ACTION = {
    Action.FORWARD: FORWARD, Action.BACKWARD: BACKWARD, Action.INPUT_BACKWARD: INPUT_BACKWARD,
    Action.WEIGHT_BACKWARD: WEIGHT_BACKWARD, Action.OPTIMIZER: OPTIMIZER,
}  # fmt: skip
_BY_KIND = {Kind.COMMUNICATION: COMMUNICATION, Kind.COPY: COPY, Kind.UNCLASSIFIED: UNCLASSIFIED}


@dataclass(frozen=True)
class Lanes:
    """Spans of one step, sorted by start: float64 milliseconds from the step's start; -1 where nothing is known."""

    row: NDArray[np.int32]  # index into `ranks`
    start_ms: NDArray[np.float64]
    length_ms: NDArray[np.float64]
    category: NDArray[np.int8]  # index into CATEGORIES
    micro_batch: NDArray[np.int32]
    stage: NDArray[np.int32]
    name: tuple[str, ...]  # of each span
    ranks: tuple[int, ...]
    step_ms: float
    step: int  # -1: the timeline names no steps

    def __len__(self) -> int:
        return len(self.row)


def typical_step(timeline: Timeline) -> int:
    """The step whose length is the median (the lower of two); -1 when the timeline names no steps."""
    steps = np.unique(timeline.step[timeline.step >= 0])
    if not len(steps):
        return -1
    lengths = []
    for step in steps:
        mask = timeline.step == step
        lengths.append(int(timeline.end[mask].max() - timeline.start[mask].min()))
    return int(steps[np.argsort(lengths, kind="stable")[(len(steps) - 1) // 2]])


def lanes(timeline: Timeline, step: int | None = None, ranks: Sequence[int] | None = None) -> Lanes:
    """The device spans of one step (by default a typical one) of the given ranks (by default all recorded ones).

    Host spans are left out. Raises ValueError when the step has no device spans.
    """
    chosen = typical_step(timeline) if step is None else step
    rows = tuple(timeline.recorded if ranks is None else ranks)
    mask = timeline.kind != Kind.HOST
    if chosen >= 0:
        mask &= timeline.step == chosen
    if not mask.any():
        raise ValueError(f"the timeline has no device spans in step {chosen}")
    begin, end = int(timeline.start[mask].min()), int(timeline.end[mask].max())
    part = timeline.select(mask & np.isin(timeline.rank, rows))
    order = np.lexsort((part.end, part.start))
    per_ms = 1e6 * timeline.time_scale  # wall nanoseconds a device millisecond
    row_of = np.full(int(timeline.rank.max()) + 1, -1, np.int32)
    row_of[[rank for rank in rows if rank < len(row_of)]] = [i for i, rank in enumerate(rows) if rank < len(row_of)]
    category = np.full(len(part), CATEGORIES.index(OTHER), np.int8)
    for action, name in _BY_ACTION.items():
        category[(part.kind == Kind.COMPUTE) & (part.action == action)] = CATEGORIES.index(name)
    for kind, name in _BY_KIND.items():
        category[part.kind == kind] = CATEGORIES.index(name)
    return Lanes(
        row=row_of[part.rank[order]],
        start_ms=(part.start[order] - begin) / per_ms,
        length_ms=(part.end - part.start)[order] / per_ms,
        category=category[order],
        micro_batch=part.micro_batch[order],
        stage=part.stage[order],
        name=tuple(timeline.names[i] for i in part.name[order].tolist()),
        ranks=rows,
        step_ms=(end - begin) / per_ms,
        step=chosen,
    )


def joined(spans: Lanes, gap_ms: float) -> Lanes:
    """The same lanes with spans of one row and category joined where at most `gap_ms` lies between them.

    For pictures with more spans than pixels; micro-batches, stages and names of joined spans are given up.
    """
    keep: list[tuple[int, int, float, float]] = []
    for row in range(len(spans.ranks)):
        for category in np.unique(spans.category[spans.row == row]).tolist():
            mask = (spans.row == row) & (spans.category == category)
            starts = spans.start_ms[mask]
            reach = np.maximum.accumulate(starts + spans.length_ms[mask])
            first = np.concatenate(([True], starts[1:] > reach[:-1] + gap_ms))
            last = np.concatenate((first[1:], [True]))
            keep += [(row, category, s, e - s) for s, e in zip(starts[first], reach[last], strict=True)]
    keep.sort(key=lambda span: span[2])
    nothing = np.full(len(keep), -1, np.int32)
    return Lanes(
        row=np.array([k[0] for k in keep], np.int32), start_ms=np.array([k[2] for k in keep]),
        length_ms=np.array([k[3] for k in keep]), category=np.array([k[1] for k in keep], np.int8),
        micro_batch=nothing, stage=nothing, name=("",) * len(keep), ranks=spans.ranks, step_ms=spans.step_ms,
        step=spans.step,
    )  # fmt: skip
