"""The figures of a finished run, from the files that its ranks left."""

from collections.abc import Sequence
from statistics import median

from meshwright.basics.errors import RunFailed
from meshwright.basics.quantities import GIB
from meshwright.files.plan import Plan
from meshwright.files.run import RunFolder, RunResult, StepMetrics
from meshwright.files.run_io import read_memory, read_metrics
from meshwright.predictor.utilisation import model_flops_utilisation
from meshwright.trainer.bubble import recorded_bubble
from meshwright.trainer.rank import LOGS


def result_of(plan: Plan, folder: RunFolder, since: int = 0) -> RunResult:
    """The result of a run; times are device seconds. See `measured_windows` for which steps count; of a resumed run
    only those after step `since` do.

    `bubble_fraction` is None without a pipeline or without recorded spans, `memory_gib` is the largest peak of tensors
    on a rank (None: not tracked), `mfu` is None on devices that have no data-sheet peak in the precision of the run.
    Raises RunFailed when no step was finished.
    """
    steps = read_metrics(folder.metrics) if folder.metrics.exists() else ()
    fresh = [step for step in steps if step.step > since]
    if not fresh:
        raise RunFailed(f"the ranks ended without finishing a step (logs in {folder.root / LOGS})")
    counted = measured_windows(fresh)
    windows = tuple(median(step.device_s for step in window) for window in counted)
    step_time, last = median(windows), counted[-1][-1]
    memory = read_memory(folder.memory) if folder.memory.exists() else ()
    peaks = [rank.peak_tensors for rank in memory if rank.peak_tensors is not None]
    return RunResult(
        run=str(folder.root), steps=len({step.step for step in steps}), loss=steps[-1].loss, first_loss=steps[0].loss,
        tokens_per_s=last.tokens / step_time, step_time_s=step_time, step_time_spread=(min(windows), max(windows)),
        mfu=model_flops_utilisation(plan.setup.proposal, plan.batch, plan.layout.world, step_time),
        bubble_fraction=recorded_bubble(folder.spans, last.mode) if plan.layout.pp > 1 else None,
        memory_gib=max(peaks) / GIB if peaks and len(peaks) == len(memory) else None,
        mode=last.mode, dilation=last.dilation, windows=windows,
    )  # fmt: skip


def measured_windows(steps: Sequence[StepMetrics]) -> tuple[tuple[StepMetrics, ...], ...]:
    """The steps that count, by window: none that were profiled, unless all were; of the rest those in the mode of the
    last; and not a window's first step, its warm-up, when the window has more than two.
    """
    plain = [step for step in steps if not step.profiled] or steps
    windows: dict[int, list[StepMetrics]] = {}
    for step in plain:
        if step.mode == plain[-1].mode:
            windows.setdefault(step.window, []).append(step)
    return tuple(tuple(window[1:] if len(window) > 2 else window) for window in windows.values())
