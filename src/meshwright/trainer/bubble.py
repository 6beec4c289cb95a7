"""The pipeline bubble as measured: the counterpart of the predicted bubble fraction."""

from pathlib import Path

import numpy as np

from meshwright.basics.figures import Mode
from meshwright.timeline.columns import Action, Kind, Timeline, concatenate
from meshwright.timeline.intervals import total
from meshwright.timeline.storage import load

_ACTIONS = (Action.FORWARD, Action.BACKWARD, Action.INPUT_BACKWARD, Action.WEIGHT_BACKWARD)


def recorded_bubble(spans: Path, mode: Mode) -> float | None:
    """The bubble fraction in the spans of a run; None when none of that mode were recorded."""
    files = sorted(spans.glob("rank*.npz"))
    parts = [part for part in map(load, files) if part.mode == mode]
    return bubble_fraction(concatenate(parts)) if files and len(parts) == len(files) else None


def bubble_fraction(timeline: Timeline) -> float | None:
    """Mean over ranks and steps of a rank's idle share of the pipeline: the time from the first stage action of any
    rank to the last, less the rank's own actions with the collectives inside them. None without stage actions.
    """
    inside = np.isin(timeline.action, _ACTIONS) & (timeline.stage >= 0)
    # A receive waits outside the actions; it has no sequence number, as collectives inside them have.
    inside &= (timeline.kind == Kind.COMPUTE) | (timeline.sequence >= 0)
    shares = []
    for step in np.unique(timeline.step[inside]):
        mine = inside & (timeline.step == step)
        length = int(timeline.end[mine].max() - timeline.start[mine].min())
        for rank in timeline.recorded:
            own = mine & (timeline.rank == rank)
            shares.append(1 - total(timeline.start[own], timeline.end[own]) / length)
    return float(np.mean(shares)) if shares else None
