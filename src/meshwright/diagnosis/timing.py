"""Timing tables: slow ranks, work dealt out unevenly, and ranks that wait for data."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.data_balance import find_uneven_work, work_figures
from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.stragglers import judge_times
from meshwright.diagnosis.thresholds import IDLE, PERSISTENT, SLOW
from meshwright.files.findings import Finding
from meshwright.traces.timing import Timing, read_timing

_TEST = "run one matrix product on each rank alone, then an all-reduce of each pair with it; compare clocks and heat"


def diagnose_timing(paths: Sequence[Path]) -> Said:
    """What timing tables say. Raises InputError when one cannot be read."""
    tables: dict[str, object] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    for path in paths:
        timing = read_timing(path)
        notes += timing.notes
        found, figures = _judged(path, timing, notes)
        findings += found
        tables[str(path)] = figures
    return Said(counted(len(tables), "timing table"), tables=tables, findings=tuple(findings), abstained=tuple(notes))


def _judged(path: Path, timing: Timing, notes: list[str]) -> tuple[list[Finding], dict[str, object]]:
    times = timing.compute
    if times is None and "step" in timing.seconds:
        times = timing.seconds["step"]
        notes.append(
            f"{path.name}: whole steps only: where ranks wait for each other in a step, a slow one cannot be told apart"
        )
    if times is None:
        notes.append(f"{path.name}: no forward, backward or step times: slow ranks cannot be judged")
        return [found for found in (_data(path, timing),) if found], {}
    whole: NDArray[np.bool_] = np.asarray(np.isfinite(times).all(axis=1), np.bool_)
    figures: dict[str, object] = {"steps": len(timing.steps), "ranks": len(timing.ranks)}
    if not whole.any() or len(timing.ranks) < 2:
        notes.append(f"{path.name}: no step with times of two ranks or more: nothing to compare")
        return [], figures
    times, steps = times[whole], int(whole.sum())
    slowest = times.max(axis=1)
    figures |= {
        "compute_s": dict(zip(timing.ranks, np.median(times, axis=0).tolist(), strict=True)),
        "wait_share": dict(zip(timing.ranks, (1 - times / slowest[:, None]).mean(axis=0).tolist(), strict=True)),
        "spread": float(np.median(slowest / times.min(axis=1))), "threshold": SLOW,
    }  # fmt: skip
    found: list[Finding] = []
    uneven, explained = find_uneven_work(path, timing, times, whole)
    figures |= work_figures(timing, whole)
    judged = times
    if uneven is not None:
        found.append(uneven)
        judged = explained
    verdict = judge_times(judged)
    figures["verdict"] = "data imbalance" if uneven is not None and verdict.kind != "persistent" else verdict.kind
    figures["job_loss"] = verdict.job_loss
    if verdict.kind == "persistent" and verdict.column is not None:
        found.append(_slow(path, timing.ranks[verdict.column], verdict.excess, verdict.job_loss, verdict.persistence,
                           slowest, steps))  # fmt: skip
    elif verdict.kind == "jitter" and uneven is None:
        figures["verdict"] = "transient"
        notes.append(
            f"{path.name}: the slowest rank of a step is {verdict.excess:.0%} over its peers, but it "
            f"is another one each time: transient jitter, no single culprit; "
            f"about {verdict.job_loss:.0%} of the time is lost waiting"
        )
    if waiting := _data(path, timing):
        found.append(waiting)
    return found, figures


def _slow(
    path: Path, rank: int, excess: float, loss: float, persistence: float, slowest: NDArray[np.float64], steps: int
) -> Finding:
    cost = loss * float(np.median(slowest))
    return Finding(
        kind="slow rank",
        ranks=(rank,),
        stages=(),
        cause=(
            f"rank {rank} computes {excess:.0%} longer than its peers in {persistence:.0%} of the steps: the others "
            f"wait for it, {loss:.0%} of the time"
        ),
        evidence={
            "file": str(path), "excess": excess, "job_loss": loss, "persistence": persistence, "steps": steps,
            "threshold": SLOW, "persistent_from": PERSISTENT,
        },
        cost_s_per_step=cost,
        share=loss,
        confidence="high" if steps >= 10 else "medium",
        change={},
        predicted_gain=(loss / 2, loss, loss),
        verify=_TEST,
    )  # fmt: skip


def _data(path: Path, timing: Timing) -> Finding | None:
    """Ranks that wait for their data, where that is more than a tenth of what they do."""
    data = timing.seconds.get("data")
    rest = [grid for phase, grid in timing.seconds.items() if phase in ("forward", "backward", "comm", "optimizer")]
    if data is None or not rest:
        return None
    whole = data + sum(rest[1:], rest[0])
    kept = np.isfinite(whole).all(axis=1)
    if not kept.any() or not (whole[kept].sum(axis=0) > 0).all():
        return None
    share = data[kept].sum(axis=0) / whole[kept].sum(axis=0)
    worst = int(share.argmax())
    if share[worst] < IDLE:
        return None
    cost = float(data[kept][:, worst].mean())
    return Finding(
        kind="input bound",
        ranks=tuple(rank for rank, part in zip(timing.ranks, share.tolist(), strict=True) if part >= IDLE),
        stages=(),
        cause=f"rank {timing.ranks[worst]} waits {seconds_text(cost)} a step for its data ({share[worst]:.0%})",
        evidence={"file": str(path), "data_share": dict(zip(timing.ranks, share.tolist(), strict=True))},
        cost_s_per_step=cost,
        share=float(share[worst]),
        confidence="high",
        change={},
        predicted_gain=(0.0, float(share[worst]), float(share[worst])),
        verify="train on a batch kept in memory: the step time without reading is what is left to gain",
    )  # fmt: skip
