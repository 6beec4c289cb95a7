"""What a stage of a traced pipeline does not compute: filling, draining, and starving in between."""

import numpy as np

from meshwright.diagnosis.traced import Traced, is_transfer
from meshwright.timeline.columns import Kind
from meshwright.timeline.intervals import clip, subtract, total, union

_NEXT_NS = 200_000  # work that follows a rank's last transfer within this time belongs to it; later: the optimizer


def pipeline_idle(job: Traced) -> dict[int, dict[str, float]]:
    """Seconds a step in which each rank did not compute, by phase of the pipeline; empty where no stages were seen.

    Fill lies before the rank's first kernel, drain between the end of its own last action and of the last action of
    any rank, starvation between them: waiting there is for a neighbour that was late.
    """
    if not job.stages:
        return {}
    c, line = job.collectives, job.timeline
    chosen = np.array([is_transfer(c, k) for k in range(len(c))], np.bool_)[c.which]
    scale = 1e9 * line.time_scale * len(job.windows)
    sums = {rank: dict.fromkeys(("fill", "starvation", "drain"), 0.0) for rank in line.recorded}
    compute = np.isin(line.kind, (Kind.COMPUTE, Kind.UNCLASSIFIED))
    busy = {
        rank: union(line.start[(line.rank == rank) & compute], line.end[(line.rank == rank) & compute])
        for rank in line.recorded
    }  # fmt: skip
    for window in job.windows:
        inside = {rank: clip(*busy[rank], window.start, window.end) for rank in line.recorded}
        done: dict[int, int] = {}
        for rank, (starts, ends) in inside.items():
            own = c.end[chosen & (c.step == window.step) & (c.rank == rank)]
            if len(own) and len(starts):
                last = int(own.max())
                works = ends[(ends > last) & (starts < last + _NEXT_NS)]
                done[rank] = int(works[0]) if len(works) else last
        for rank, end in done.items():
            first = int(inside[rank][0][0])
            phases = {"fill": (window.start, first), "starvation": (first, end), "drain": (end, max(done.values()))}
            for phase, (low, high) in phases.items():
                gaps = subtract((np.array([low]), np.array([high])), inside[rank])
                sums[rank][phase] += total(*gaps) / scale
    return sums
