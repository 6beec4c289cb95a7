"""Work dealt out unevenly: ranks that get long sequences while their tokens are the same."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.diagnosis.thresholds import PERSISTENT, SLOW
from meshwright.files.findings import Finding
from meshwright.traces.timing import Timing

_EXPLAINS = 0.7  # of the variance of times within steps


def work_figures(timing: Timing, kept: NDArray[np.bool_]) -> dict[str, object]:
    """Tokens and sums of squared lengths by rank, the mean over the kept steps; empty where the table has none."""
    return {
        name: dict(zip(timing.ranks, np.nanmean(grid[kept], axis=0).tolist(), strict=True))
        for name, grid in timing.work.items()
        if np.isfinite(grid[kept]).any(axis=0).all()
    }


def find_uneven_work(
    path: Path, timing: Timing, times: NDArray[np.float64], kept: NDArray[np.bool_]
) -> tuple[Finding | None, NDArray[np.float64]]:
    """The finding where times within a step follow the work of its samples, and the times with that taken out.

    `times` [kept steps, ranks], seconds. Told by regression of time on tokens and the sum of squared lengths, both as
    differences from the step's mean, where that explains most of the spread; without those columns by the order of
    the ranks alone nothing is claimed.
    """
    grids = [grid[kept] for grid in timing.work.values() if np.isfinite(grid[kept]).all()]
    slowest = times.max(axis=1)
    if not grids or len(timing.ranks) < 2 or np.median(slowest / np.median(times, axis=1)) < 1 + (SLOW - 1) / 2:
        return None, times
    own = times - times.mean(axis=1, keepdims=True)
    parts = [(grid - grid.mean(axis=1, keepdims=True)).ravel() for grid in grids]
    parts = [part / np.abs(part).max() for part in parts if np.abs(part).max() > 0]
    total = float((own**2).sum())
    if not parts or not total or own.size < 2 * len(parts) + 2:
        return None, times
    design = np.column_stack(parts)
    slope, *_ = np.linalg.lstsq(design, own.ravel(), rcond=None)
    predicted = (design @ slope).reshape(own.shape)
    explained = 1 - float(((own - predicted) ** 2).sum()) / total
    if explained < _EXPLAINS or slope.sum() <= 0:
        return None, times
    order = np.argmax(times, axis=1)
    often = int(np.bincount(order).max()) / len(order)
    lost = float((slowest - times.mean(axis=1)).mean())
    share = lost / float(slowest.mean())
    squares = timing.work.get("sum_len_sq")
    ratio = None if squares is None else float(np.median(squares[kept].max(axis=1) / squares[kept].min(axis=1)))
    turns = f"the slowest rank changes from step to step (none is it in more than {often:.0%})"
    stays = f"rank {timing.ranks[int(np.bincount(order).argmax())]} gets the most work in {often:.0%} of the steps"
    finding = Finding(
        kind="data imbalance",
        ranks=(),
        stages=(),
        cause=(
            f"the samples, not the devices: times within a step follow the work of the samples ({explained:.0%} of the "
            f"spread), and {turns if often < PERSISTENT else stays}; the others wait, {share:.0%} of the step"
        ),
        evidence={
            "file": str(path), "explained": explained, "slowest_most_often": often, "most_over_least_sum_len_sq": ratio,
            "wait_share": dict(zip(timing.ranks, (1 - times / slowest[:, None]).mean(axis=0).tolist(), strict=True)),
            **work_figures(timing, kept),
        },
        cost_s_per_step=lost,
        share=share,
        confidence="high" if len(times) >= 10 else "medium",
        change={"data.balance": True},
        predicted_gain=(0.5 * share, 0.8 * share, share),
        verify="deal samples out by the sum of squared lengths, longest first, and compare the wait shares",
    )  # fmt: skip
    return finding, times - predicted
