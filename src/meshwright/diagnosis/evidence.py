"""What a diagnosis may use: the timeline in steps, the plan behind it, and the measured cost of every action."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnosis.split import Window, rank_splits, windows_of
from meshwright.diagnosis.waits import without_waiting
from meshwright.files.findings import RankSplit
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.timeline.columns import Action, Kind, Timeline

_PIPELINE = (Action.FORWARD, Action.BACKWARD, Action.INPUT_BACKWARD, Action.WEIGHT_BACKWARD)


@dataclass(frozen=True, slots=True)
class ActionCost:
    """Median device seconds of one kind of action on one stage of one rank, over micro-batches and steps."""

    compute_s: float
    extent_s: float  # from its first to its last span: compute and the communication inside


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run. `timeline` has waits for pipeline senders taken out of its receives."""

    timeline: Timeline
    windows: tuple[Window, ...]
    splits: tuple[RankSplit, ...]
    plan: Plan | None
    measured: MeasuredUnits | None
    step_s: float  # median window, device seconds
    actions: Mapping[tuple[int, int, Action], ActionCost]  # (rank, stage, action)
    stage_ranks: Mapping[int, tuple[int, ...]]  # which ranks were seen computing a stage

    @property
    def compute_by_step(self) -> NDArray[np.float64]:
        """[steps, recorded ranks] device seconds of pipeline actions and other compute, the optimizer left out."""
        line = self.timeline
        keep = (line.kind == Kind.COMPUTE) & (line.action != Action.OPTIMIZER)
        keep &= np.isin(line.step, [window.step for window in self.windows])
        rows = np.searchsorted([window.step for window in self.windows], line.step[keep])
        columns = np.searchsorted(line.recorded, line.rank[keep])
        out = np.zeros((len(self.windows), len(line.recorded)))
        np.add.at(out, (rows, columns), (line.end - line.start)[keep] / (1e9 * line.time_scale))
        return out

    def stage_cost(self, stage: int, action: Action, *, extent: bool, slowest: bool) -> float:
        """Device seconds of an action on a stage: of its slowest rank, or the median of its ranks. 0 if not seen."""
        costs = [cost for (_, s, a), cost in self.actions.items() if s == stage and a == action]
        values = [cost.extent_s if extent else cost.compute_s for cost in costs]
        if not values:
            return 0.0
        return max(values) if slowest else float(np.median(values))

    def stage_compute(self, stage: int) -> float:
        """Device seconds of compute of one micro-batch on a stage, forward and backward; the median of its ranks."""
        return sum(self.stage_cost(stage, action, extent=False, slowest=False) for action in _PIPELINE)


def gather(timeline: Timeline, plan: Plan | None = None, measured: MeasuredUnits | None = None) -> Evidence:
    """The evidence in a timeline; plan and unit times where they are known."""
    clipped = without_waiting(timeline)
    windows = windows_of(clipped)
    lengths = [window.length for window in windows]
    step_s = float(np.median(lengths)) / (1e9 * timeline.time_scale) if lengths else 0.0
    actions = _action_costs(clipped, windows)
    stage_ranks: dict[int, tuple[int, ...]] = {}
    for rank, stage, _ in sorted(actions):
        if rank not in stage_ranks.get(stage, ()):
            stage_ranks[stage] = (*stage_ranks.get(stage, ()), rank)
    splits = rank_splits(clipped, windows)
    return Evidence(clipped, windows, splits, plan, measured, step_s, actions, stage_ranks)


def _action_costs(timeline: Timeline, windows: Sequence[Window]) -> dict[tuple[int, int, Action], ActionCost]:
    steps = [window.step for window in windows]
    keep = (timeline.kind == Kind.COMPUTE) & np.isin(timeline.action, _PIPELINE) & (timeline.stage >= 0)
    keep &= np.isin(timeline.step, steps)
    if not keep.any():
        return {}
    columns = (timeline.micro_batch, timeline.step, timeline.action, timeline.stage, timeline.rank)
    keys = np.stack([column[keep].astype(np.int64) for column in columns])
    order = np.lexsort(keys)
    keys = keys[:, order]
    start, end = timeline.start[keep][order], timeline.end[keep][order]
    first = np.flatnonzero(np.append(True, np.any(keys[:, 1:] != keys[:, :-1], axis=0)))
    device_ns = 1e9 * timeline.time_scale
    compute = np.add.reduceat(end - start, first) / device_ns
    extent = (np.maximum.reduceat(end, first) - np.minimum.reduceat(start, first)) / device_ns
    seen: dict[tuple[int, int, Action], list[int]] = {}
    for row, (action, stage, rank) in enumerate(keys[2:, first].T.tolist()):
        seen.setdefault((rank, stage, Action(action)), []).append(row)
    return {
        key: ActionCost(float(np.median(compute[rows])), float(np.median(extent[rows]))) for key, rows in seen.items()
    }
