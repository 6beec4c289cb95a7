"""The front of memory and time: the fastest plan, and for less and less memory the fastest that still fits."""

from dataclasses import dataclass

from meshwright.basics.errors import AnswerIsNo
from meshwright.files.plan import Plan
from meshwright.planner.candidates import Bench
from meshwright.planner.rank import ranked_within
from meshwright.planner.search import step_s

_LESS = 0.92  # of the memory of one point, the most that the next may need
_POINTS = 12


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A plan; no plan that needs less memory is as fast. `bytes` of the fullest rank."""

    plan: Plan
    bytes: int
    step_s: float


def front(bench: Bench, best: Plan, most_slower: float = 1.0) -> tuple[FrontPoint, ...]:
    """From the fastest plan (`best`) to the leanest, each proven fastest within its memory: the job is planned again
    with the limit a little below the last point's need. Ends after 12 points, when nothing fits, or when a step is
    `most_slower` longer than the best (1.0: twice)."""
    points: list[FrontPoint] = []
    plan: Plan | None = best
    while plan is not None and len(points) < _POINTS:
        assert plan.prediction is not None
        needs, seconds = plan.prediction.worst_memory.total, step_s(plan)
        if points and seconds > points[0].step_s * (1 + most_slower):
            break
        points = [point for point in points if point.bytes < needs or point.step_s < seconds]
        points.append(FrontPoint(plan, needs, seconds))
        try:
            plan = ranked_within(bench.limited(int(needs * _LESS)), top=1).plans[0]
        except AnswerIsNo:
            plan = None
    return tuple(points)
