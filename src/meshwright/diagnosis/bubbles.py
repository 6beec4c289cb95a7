"""The pipeline bubble: what the schedule costs by itself, what was observed, and which stage the excess is due to."""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.diagnosis.evidence import Evidence
from meshwright.diagnosis.replay import Replay
from meshwright.diagnosis.thresholds import EXCESS


def rank_loads(replay: Replay) -> tuple[float, ...]:
    """Seconds of pipeline actions of one micro-batch on each pipeline rank (halves or whole backward as scheduled)."""
    micro_batches = replay.plan.batch.micro_batches
    return tuple(busy / micro_batches for busy in replay.simulated(replay.costs).busy_s)


def ideal_idle(replay: Replay) -> float:
    """Idle share that the schedule has with equal stages and free transfers, for this number of micro-batches."""
    n = len(replay.plan.layout.stages)
    equal = tuple((sum(row) / n,) * n for row in replay.costs)
    layout = replay.plan.layout
    if layout.pp == 1:
        return 0.0
    return replace(replay, hop_s=0.0).simulated(equal).bubble_fraction


def bubble_of(evidence: Evidence, replay: Replay) -> Mapping[str, object]:
    """`ideal`, `observed` and `excess` idle shares of the step, and the stage the excess is charged to.

    `without_compute` is the share of the step in which a rank did not compute: idle, or in exposed communication.
    Observed is the mean over ranks of the time a device did nothing, waits for other stages included. The excess is
    charged to the stage whose rank works longest; None while the excess is under 2 % of the step.
    """
    layout = replay.plan.layout
    if layout.pp == 1:
        return {}
    loads = rank_loads(replay)
    observed = sum(split.idle_s / split.window_s for split in evidence.splits) / len(evidence.splits)
    computing = sum(split.compute_s / split.window_s for split in evidence.splits) / len(evidence.splits)
    ideal = ideal_idle(replay)
    slowest = max(range(layout.pp), key=loads.__getitem__)
    stages = layout.stages_of(slowest)
    blamed = max(stages, key=lambda stage: sum(row[stage] for row in replay.costs[:2]))
    excess = observed - ideal
    return {
        "schedule": layout.schedule, "ideal": ideal, "observed": observed, "excess": excess,
        "without_compute": 1 - computing, "excess_s": excess * evidence.step_s,
        "stage": blamed if excess > EXCESS else None,
        "ranks": list(evidence.stage_ranks[blamed]) if excess > EXCESS else [],
    }  # fmt: skip
