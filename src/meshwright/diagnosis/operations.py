"""Operation tables: how much slow stages and slow workers cost, by replaying the job without them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.operation_graph import Graph, graph_of
from meshwright.diagnosis.operation_moves import moved
from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.thresholds import EXCESS, REPLAY_ERROR, SLOW
from meshwright.files.findings import Finding
from meshwright.files.setup import Setup
from meshwright.traces.operations import Operations, read_operations

_COMPUTE = ("forward-compute", "backward-compute")


@dataclass(frozen=True)
class WhatIf:
    """Seconds a step, means over the steps, and slowdowns: ratios to the step without stragglers."""

    traced_s: float
    no_delay_s: float
    ideal_s: float
    by_stage: dict[int, float]  # slowdown when only that stage keeps its times
    by_replica: dict[int, float]
    stage_index: dict[int, float]  # part of the stragglers' loss that disappears when that stage alone is evened
    worker_share: dict[tuple[int, int], float]  # the same for one (replica, stage)

    @property
    def slowdown(self) -> float:
        """By stragglers."""
        return self.no_delay_s / self.ideal_s


def what_if(table: Operations, graph: Graph) -> WhatIf:
    """Replay the table with stragglers evened out, whole and in parts."""
    even = graph.even()
    no_delay, ideal = graph.replay(graph.duration).mean(), graph.replay(even).mean()
    stages = sorted({op[1] for op in table.start})
    replicas = sorted({op[0] for op in table.start})
    lost = no_delay - ideal

    def recovered(evened: set[tuple[int, int]]) -> float:
        own = graph.mixed(even, lambda ops: not {op[:2] for op in ops} <= evened)
        return float((no_delay - graph.replay(own).mean()) / lost) if lost > 1e-3 * ideal else 0.0

    def alone(position: int, number: int) -> float:
        own = graph.mixed(even, lambda ops: any(op[position] == number for op in ops))
        return float(graph.replay(own).mean() / ideal)

    workers = sorted({op[:2] for op in table.start})
    return WhatIf(
        float(table.step_s.mean()), float(no_delay), float(ideal),
        {stage: alone(1, stage) for stage in stages}, {replica: alone(0, replica) for replica in replicas},
        {stage: recovered({(replica, stage) for replica in replicas}) for stage in stages},
        {worker: recovered({worker}) for worker in workers},
    )  # fmt: skip


def diagnose_operations(paths: Sequence[Path], setup: Setup | None) -> Said:
    """What operation tables say. Raises InputError when one cannot be read."""
    tables: dict[str, object] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    step_s = None
    for path in paths:
        table = read_operations(path)
        notes += table.notes
        graph = graph_of(table)
        found = what_if(table, graph)
        step_s = found.traced_s
        error = found.no_delay_s / found.traced_s - 1
        compute = _stage_compute(table)
        tables[str(path)] = {
            "steps": len(table.steps), "step_s": found.traced_s, "no_delay_s": found.no_delay_s,
            "ideal_s": found.ideal_s, "slowdown_by_launch_delays": found.traced_s / found.no_delay_s,
            "slowdown_by_stragglers": found.slowdown, "slowdown_by_stage": found.by_stage,
            "slowdown_by_replica": found.by_replica, "stage_index": found.stage_index,
            "worker_share": {f"replica {d}, stage {s}": share for (d, s), share in found.worker_share.items()},
            "forward_s": {stage: times[0] for stage, times in compute.items()},
            "backward_s": {stage: times[1] for stage, times in compute.items()},
            "compute_share_of_step": _compute_share(table),
        }  # fmt: skip
        if abs(error) > REPLAY_ERROR:
            notes.append(
                f"{path.name}: replaying the table gives {seconds_text(found.no_delay_s)} a step where "
                f"{seconds_text(found.traced_s)} were traced: no what-if is trusted"
            )
        elif found.slowdown > 1 + EXCESS:
            findings += _judged(path, table, graph, found, compute, setup, notes)
    return Said(counted(len(tables), "operation table"), tables=tables, findings=tuple(findings),
                abstained=tuple(notes), step_time_s=step_s)  # fmt: skip


def _stage_compute(table: Operations) -> dict[int, tuple[float, float]]:
    """Median seconds of forward and of backward of one micro-batch, by stage."""
    found: dict[int, tuple[float, float]] = {}
    for stage in sorted({op[1] for op in table.start}):
        times = [[table.duration[op] for op in table.duration if op[1] == stage and op[2] == kind] for kind in _COMPUTE]
        if all(times):
            found[stage] = float(np.median(times[0])), float(np.median(times[1]))
    return found


def _compute_share(table: Operations) -> dict[int, float]:
    shares: dict[int, float] = {}
    for stage in sorted({op[1] for op in table.start}):
        replicas = {op[0] for op in table.start if op[1] == stage}
        busy = sum(table.duration[op].mean() for op in table.duration if op[1] == stage and op[2] in _COMPUTE)
        shares[stage] = float(busy / len(replicas) / table.step_s.mean())
    return shares


def _judged(
    path: Path, table: Operations, graph: Graph, found: WhatIf, compute: dict[int, tuple[float, float]],
    setup: Setup | None, notes: list[str],
) -> list[Finding]:  # fmt: skip
    stage = max(found.by_stage, key=found.by_stage.__getitem__)
    worker = max(found.worker_share, key=found.worker_share.__getitem__)
    share = (found.no_delay_s - found.ideal_s) / found.traced_s
    if found.worker_share[worker] >= 0.5:
        replica, at = worker
        cost = found.worker_share[worker] * (found.no_delay_s - found.ideal_s)
        return [
            Finding(
                kind="slow rank", ranks=(), stages=(at,),
                cause=f"replica {replica} of stage {at} alone explains {found.worker_share[worker]:.0%} of what "
                f"stragglers cost ({found.slowdown:.3f} times the step without them)",
                evidence={"file": str(path), "replica": replica, "worker_share": found.worker_share[worker],
                          "slowdown": found.slowdown},
                cost_s_per_step=cost, share=cost / found.traced_s, confidence="high", change={},
                predicted_gain=None, verify="run one matrix product on that rank alone; compare clocks and heat",
            )
        ]  # fmt: skip
    if len(compute) < 2 or found.stage_index[stage] < 0.5 or found.by_stage[stage] < 1 + EXCESS:
        notes.append(
            f"{path.name}: stragglers cost {share:.0%} of the step, spread over stages and workers: no single cause"
        )
        return []
    whole = {s: sum(times) for s, times in compute.items()}
    mean = float(np.mean(list(whole.values())))
    if whole[stage] < SLOW * mean:
        notes.append(f"{path.name}: stage {stage} costs most, but not by its compute: no layers to move")
        return []
    move = moved(graph, stage, whole, found.traced_s, setup)
    return [
        Finding(
            kind="imbalance",
            ranks=(),
            stages=(stage,),
            cause=(
                f"stage {stage} computes {whole[stage] / mean:.2f} times the mean (forward {compute[stage][0]:.3f} s "
                f"against {_others(compute, stage, 0):.3f} s, backward {compute[stage][1]:.3f} s against "
                f"{_others(compute, stage, 1):.3f} s): alone it makes the step {found.by_stage[stage]:.3f} times as "
                f"long, where all stragglers make it {found.slowdown:.3f}; single workers explain at most "
                f"{max(found.worker_share.values()):.2f} of it. {move.words}"
            ),
            evidence={
                "file": str(path), "slowdown": found.slowdown, "slowdown_by_stage": found.by_stage,
                "stage_index": found.stage_index[stage], "worker_share": max(found.worker_share.values()),
                "compute_over_mean": whole[stage] / mean, "replay_error": found.no_delay_s / found.traced_s - 1,
            },
            cost_s_per_step=found.no_delay_s - found.ideal_s,
            share=share,
            confidence="high",
            change=move.change,
            predicted_gain=move.gain,
            verify="train with the layers moved, record the table again: the slowdown must fall as predicted",
        )
    ]  # fmt: skip


def _others(compute: dict[int, tuple[float, float]], stage: int, part: int) -> float:
    return float(np.median([times[part] for s, times in compute.items() if s != stage]))
