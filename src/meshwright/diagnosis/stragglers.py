"""Slow ranks: one that computes longer than its peers at the same stage, step after step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnosis.evidence import Evidence
from meshwright.diagnosis.replay import Costs, Replay
from meshwright.diagnosis.thresholds import PERSISTENT, SLOW, SLOW_BY_UNITS
from meshwright.files.findings import Finding
from meshwright.layout.thresholds import WORTH

_TEST = "run one matrix product on each rank alone, then an all-reduce of each pair with it; compare clocks and heat"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What compute times of peers say. `excess` is over the peers' median; `job_loss` the share of time lost."""

    kind: Literal["persistent", "jitter", "none"]
    column: int | None  # the slow rank
    excess: float
    job_loss: float
    persistence: float  # share of steps in which that rank was slow


def judge_times(times: NDArray[np.float64]) -> Verdict:
    """Who is slow in `times` [steps, ranks], seconds of compute of ranks that do the same work.

    Persistent: the median ratio of one rank to its peers' median is at least 1.10, in 90 % of the steps. Jitter: no
    such rank, but the slowest rank of a step, whoever it is, is that much slower than the median. Else none.
    """
    steps, ranks = times.shape
    if ranks < 2 or not steps:
        return Verdict("none", None, 0.0, 0.0, 0.0)
    ratio = np.empty_like(times)
    for rank in range(ranks):
        ratio[:, rank] = times[:, rank] / np.median(np.delete(times, rank, axis=1), axis=1)
    middle = np.median(ratio, axis=0)
    slowest = int(np.argmax(middle))
    persistence = float((ratio[:, slowest] >= SLOW).mean())
    loss = float(1 - (np.median(times, axis=1) / times.max(axis=1)).mean())
    if middle[slowest] >= SLOW and persistence >= PERSISTENT:
        without = np.delete(times, slowest, axis=1)
        loss = float(1 - np.median(without) / np.median(times[:, slowest]))
        return Verdict("persistent", slowest, float(middle[slowest] - 1), loss, persistence)
    if np.median(ratio.max(axis=1)) >= SLOW:
        return Verdict("jitter", None, float(np.median(ratio.max(axis=1)) - 1), loss, persistence)
    return Verdict("none", None, float(middle[slowest] - 1), loss, persistence)


def find_slow_ranks(evidence: Evidence, replay: Replay | None, notes: list[str]) -> tuple[Finding, ...]:
    """Findings for groups of ranks with the same work: those of one stage, or all where there is no pipeline.

    A stage held by one rank has no peer: its units are compared with the like units of other stages instead
    (`replay` needed), with a wider limit.
    """
    recorded = evidence.timeline.recorded
    times = evidence.compute_by_step
    held = {rank: tuple(s for s, ranks in evidence.stage_ranks.items() if rank in ranks) for rank in recorded}
    peers: dict[tuple[int, ...], list[int]] = {}
    for column, rank in enumerate(recorded):
        peers.setdefault(held[rank], []).append(column)
    found: list[Finding] = []
    for stages, columns in peers.items():
        if len(columns) < 2 or times[:, columns].min() <= 0:
            continue
        verdict = judge_times(times[:, columns])
        ranks = [recorded[column] for column in columns]
        if verdict.kind == "persistent" and verdict.column is not None:
            found.append(_slow(evidence, replay, ranks[verdict.column], stages, verdict))
        elif verdict.kind == "jitter":
            notes.append(
                f"ranks {ranks} take turns being slow (the slowest of a step is {verdict.excess:.0%} over its peers, "
                f"about {verdict.job_loss:.0%} of the time lost): no single culprit"
            )
    alone = [columns[0] for columns in peers.values() if len(columns) == 1]
    if not found and replay is not None and len(alone) > 1:
        found += _by_units(evidence, replay, notes)
    return tuple(found)


def _slow(evidence: Evidence, replay: Replay | None, rank: int, stages: tuple[int, ...], verdict: Verdict) -> Finding:
    gain, lost = None, verdict.job_loss * evidence.step_s
    if replay is not None and stages:
        after_s = replay.step_with(_eased(replay, dict.fromkeys(stages, 1 + verdict.excess)))
        gain, lost = replay.gain(after_s), replay.step_s - after_s
    return Finding(
        kind="slow rank",
        ranks=(rank,),
        stages=stages,
        cause=(
            f"rank {rank} computes {verdict.excess:.0%} longer than its peers in {verdict.persistence:.0%} of the "
            "steps: the others wait for it"
        ),
        evidence={
            "excess": verdict.excess, "persistence": verdict.persistence, "threshold": SLOW,
            "steps": len(evidence.windows),
        },
        cost_s_per_step=lost,
        share=lost / evidence.step_s,
        confidence="high" if len(evidence.windows) >= 3 else "medium",
        change={},
        predicted_gain=gain,
        verify=_TEST,
    )  # fmt: skip


def _by_units(evidence: Evidence, replay: Replay, notes: list[str]) -> list[Finding]:
    if evidence.measured is None:
        notes.append(
            "each stage has one rank and no unit times were recorded: a slow rank cannot be told from a heavy stage"
        )
        return []
    pace = stage_pace(evidence)
    if len(pace) < 3:
        return []
    stage = max(pace, key=pace.__getitem__)
    if pace[stage] < SLOW_BY_UNITS:
        return []
    after_s = replay.step_with(_eased(replay, {stage: pace[stage]}))
    gain = replay.gain(after_s)
    if gain[1] < WORTH:
        return []
    rank = evidence.stage_ranks[stage][0]
    lost = replay.step_s - after_s
    return [
        Finding(
            kind="slow rank",
            ranks=(rank,),
            stages=(stage,),
            cause=(
                f"every unit of stage {stage} takes {pace[stage]:.2f} times as long as the like units elsewhere: "
                f"rank {rank} is slow rather than its stage heavy"
            ),
            evidence={"pace_by_stage": dict(pace), "threshold": SLOW_BY_UNITS},
            cost_s_per_step=lost,
            share=lost / evidence.step_s,
            confidence="medium",
            change={},
            predicted_gain=gain,
            verify=_TEST,
        )
    ]


def stage_pace(evidence: Evidence) -> Mapping[int, float]:
    """For each stage with layers: how long its units take over the median of like units on other stages.

    The least ratio over the kinds of units counts, so that one odd kind accuses nobody. Empty without unit times.
    """
    if evidence.plan is None or evidence.measured is None:
        return {}
    kinds: dict[str, dict[int, list[float]]] = {}
    for stage, names in enumerate(evidence.plan.layout.stages):
        for name in names:
            time = evidence.measured.units.get(name)
            if time is not None and name.startswith("layers."):
                kind = name.split(".")[2] if name.count(".") == 2 else "layer"
                kinds.setdefault(kind, {}).setdefault(stage, []).append(time.forward_s + time.backward_s)
    pace: dict[int, float] = {}
    for by_stage in kinds.values():
        for stage, own in by_stage.items():
            others = [value for s, values in by_stage.items() if s != stage for value in values]
            if others:
                ratio = float(np.median(own) / np.median(others))
                pace[stage] = min(pace.get(stage, ratio), ratio)
    return pace


def _eased(replay: Replay, by_stage: Mapping[int, float]) -> Costs:
    """The costs with some stages made faster."""
    return tuple(tuple(cost / by_stage.get(stage, 1.0) for stage, cost in enumerate(row)) for row in replay.costs)
