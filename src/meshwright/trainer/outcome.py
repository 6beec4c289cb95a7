"""The figures of a finished run, from the files that its ranks left."""

from collections.abc import Sequence
from statistics import median

from meshwright.basics.errors import RunFailed
from meshwright.basics.quantities import GIB
from meshwright.files.plan import Plan
from meshwright.files.run import RunFolder, RunResult, StepMetrics
from meshwright.files.run_io import read_memory, read_metrics
from meshwright.model.flops import step_model_flops


def result_of(plan: Plan, folder: RunFolder) -> RunResult:
    """The result of a run; times are device seconds. See `measured_windows` for which steps count.

    `memory_gib` is the largest peak resident size of a rank, None when it was not recorded; `mfu` is None on devices
    that have no data-sheet peak in the precision of the run. Raises RunFailed when no step was finished.
    """
    steps = read_metrics(folder.metrics) if folder.metrics.exists() else ()
    if not steps:
        raise RunFailed(f"the ranks ended without finishing a step (logs in {folder.root / 'logs'})")
    windows = tuple(median(times) for times in measured_windows(steps))
    step_time, last = median(windows), steps[-1]
    memory = read_memory(folder.memory) if folder.memory.exists() else ()
    return RunResult(
        run=str(folder.root), steps=len({step.step for step in steps}), loss=last.loss, first_loss=steps[0].loss,
        tokens_per_s=last.tokens / step_time, step_time_s=step_time, step_time_spread=(min(windows), max(windows)),
        mfu=_mfu(plan, step_time), bubble_fraction=None,
        memory_gib=max(rank.peak_rss for rank in memory) / GIB if memory else None,
        mode=last.mode, dilation=last.dilation, windows=windows,
    )  # fmt: skip


def measured_windows(steps: Sequence[StepMetrics]) -> tuple[tuple[float, ...], ...]:
    """Device seconds of the steps that count, by window: those in the mode of the last step; none that were profiled,
    unless all were; and not a window's first step, its warm-up, when the window has more than two.
    """
    counted = [step for step in steps if step.mode == steps[-1].mode]
    plain = [step for step in counted if not step.profiled]
    windows: dict[int, list[float]] = {}
    for step in plain or counted:
        windows.setdefault(step.window, []).append(step.device_s)
    return tuple(tuple(times[1:] if len(times) > 2 else times) for times in windows.values())


def _mfu(plan: Plan, step_time_s: float) -> float | None:
    """Model FLOPs a second over the dense peak of all devices."""
    setup = plan.setup.proposal
    peak = setup.cluster.device.peak_flops.get(setup.training.precision)
    if setup.cluster.device.kind == "cpu" or peak is None:
        return None
    flops = step_model_flops(setup.arch, plan.batch.tokens, plan.batch.seq_len)
    return flops / (step_time_s * plan.layout.world * peak.value)
