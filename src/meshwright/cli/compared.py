"""What `compare` answers: runs held against the first of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.comparison import moved
from meshwright.diagnosis.same_training import Metrics, judge_layouts
from meshwright.files.outputs_later import ComparedFigure, CompareOutput
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.run import RunFolder, StepMetrics
from meshwright.files.run_io import read_memory, read_metrics

_FEWEST = 4  # windows from which on they are the repeats; below, single steps are


def compare_runs(folders: Sequence[Path | str]) -> CompareOutput:
    """Two or more run folders: step time, loss, gradient norm and memory of each beside the first.

    Raises InputError when one is no run folder, there are fewer than two, or their times are of different modes.
    """
    runs = [RunFolder(Path(folder)) for folder in folders]
    if len(runs) < 2:
        raise bad_input("give two run folders or more", value=len(runs))
    for run in runs:
        if not run.metrics.exists():
            raise bad_input("not a run folder: there is no metrics.jsonl in it", file=str(run.root))
    steps = [[step for step in read_metrics(run.metrics) if not step.profiled] for run in runs]
    for run, own in zip(runs, steps, strict=True):
        if not own:
            raise bad_input("no steps were recorded without the profiler", file=str(run.root))
    modes = {own[-1].mode for own in steps}
    if len(modes) > 1:
        raise bad_input("step times of different modes cannot be compared", value=", ".join(sorted(modes)))
    times = [_repeats(own) for own in steps]
    found = [moved(times[0], other) for other in times[1:]]
    names = [str(run.root) for run in runs]
    figures = [
        ComparedFigure(
            name="step time", unit="s", first=found[0].first, others=[one.second for one in found],
            spread=(min(times[0]), max(times[0])),
            significant=None if any(one.chance is None for one in found) else any(one.significant for one in found),
        ),
        _plain("last loss", "", [own[-1].loss for own in steps]),
        _plain("gradient norm of the first step", "", [own[0].grad_norm for own in steps]),
        _plain("peak of tensors", "bytes", [_peak(run) for run in runs]),
    ]  # fmt: skip
    words = []
    for name, one in zip(names[1:], found, strict=True):
        text = f"{name}: step time {seconds_text(one.second)} against {seconds_text(one.first)}, {one.change:+.1%}"
        known = "too few repeats to say" if one.chance is None else "beyond" if one.significant else "within"
        words.append(f"{text} ({one.low:+.1%} to {one.high:+.1%}), {known}{' the spread' * (one.chance is not None)}")
    plans = [read_plan(run.plan) for run in runs if run.plan.exists()]
    if len(plans) == len(runs) and len({plan.layout for plan in plans}) > 1:
        doubt = judge_layouts([_metrics(*each) for each in zip(names, plans, steps, strict=True)])
        words.append(
            "losses and gradient norms agree over the layouts" if doubt is None
            else f"{doubt.what} of {' and '.join(doubt.names)} differ by {abs(doubt.difference):.2%}: {doubt.suspicion}"
        )  # fmt: skip
    significant = [figure.name for figure in figures if figure.significant]
    return CompareOutput(mode=steps[0][-1].mode, figures=figures, significant=significant, verdict="; ".join(words))


def _repeats(steps: Sequence[StepMetrics]) -> list[float]:
    """Device seconds a step: a median a window where there are several, else each step."""
    windows = sorted({step.window for step in steps})
    if len(windows) >= _FEWEST:
        return [float(np.median([s.device_s for s in steps if s.window == window])) for window in windows]
    return [step.device_s for step in steps]


def _plain(name: str, unit: str, values: Sequence[float | None]) -> ComparedFigure:
    return ComparedFigure(name=name, unit=unit, first=values[0], others=list(values[1:]), spread=None, significant=None)


def _peak(run: RunFolder) -> float | None:
    if not run.memory.exists():
        return None
    peaks = [rank.peak_tensors for rank in read_memory(run.memory) if rank.peak_tensors is not None]
    return float(max(peaks)) if peaks else None


def _metrics(name: str, plan: Plan, steps: Sequence[StepMetrics]) -> Metrics:
    return Metrics(
        name, plan.layout.tp, plan.layout.dp, plan.setup.proposal.training.precision,
        tuple(step.loss for step in steps), tuple(step.grad_norm for step in steps),
    )  # fmt: skip
