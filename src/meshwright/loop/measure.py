"""One measured run of a plan: train, profile a few steps, repeat the measurement, diagnose."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from meshwright.basics.figures import Mode
from meshwright.diagnosis.diagnose import diagnose_run
from meshwright.files.findings import Diagnosis
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits, RunFolder, RunResult
from meshwright.files.run_io import read_units, write_findings
from meshwright.files.setup import Tuning

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a plan showed. Times are device seconds."""

    plan: Plan
    folder: RunFolder
    result: RunResult
    units: MeasuredUnits
    diagnosis: Diagnosis

    @property
    def step_time_s(self) -> float:
        """Median step over the windows."""
        return self.result.step_time_s

    @property
    def noise(self) -> float:
        """Relative spread of the repeats: 1.4826 times their median absolute deviation, over their median.

        One disturbed repeat of three does not widen it. A single repeat tells nothing and counts as 5 %.
        """
        windows = self.result.windows
        if len(windows) < 2:
            return 0.05
        middle = statistics.median(windows)
        return 1.4826 * statistics.median(abs(window - middle) for window in windows) / middle

    @property
    def idle_fraction(self) -> tuple[float, ...]:
        """Share of the window that each rank did not compute, by rank (waiting and communication included)."""
        return tuple(1 - split.compute_s / split.window_s for split in self.diagnosis.ranks)


def measurement_mode(plan: Plan, tuning: Tuning) -> Mode:
    """The mode that keeps comparisons true here: dilated when ranks outnumber cores, unless the job says which."""
    if tuning.mode is not None:
        return tuning.mode
    return "dilated" if plan.setup.proposal.cluster.oversubscribed else "measured"


def measure(plan: Plan, folder: RunFolder, *, train_steps: int, progress: Progress) -> Measurement:
    """Train `train_steps` real steps, profile a few, then measure `repeats` windows in the mode that fits this machine.

    Raises RunFailed when the run breaks, InputError when it cannot start.
    """
    # Imported here because it starts torch's processes; planning alone must not need it.
    from meshwright.trainer.clock import default_dilation
    from meshwright.trainer.launch import train
    from meshwright.trainer.options import Phase, TrainOptions

    tuning, profiling = plan.setup.tune, plan.setup.profile
    mode = measurement_mode(plan, tuning)
    phases = [Phase("measured", train_steps)] if train_steps else []
    if profiling.steps and "torch" in profiling.tools:
        phases.append(Phase("measured", profiling.steps, profile=True))
    # A window's first step warms the caches after a change of mode and is not counted.
    phases += [Phase(mode, tuning.steps + 1) for _ in range(tuning.repeats)]
    cores = plan.setup.proposal.cluster.cores or plan.layout.world
    dilation = default_dilation(plan.layout.world, cores) if mode == "dilated" else None
    result = train(plan, TrainOptions(run=folder.root, phases=tuple(phases), dilation=dilation), progress)
    diagnosis = diagnose_run(folder.root)
    write_findings(diagnosis, folder.findings)
    return Measurement(plan, folder, result, read_units(folder.units), diagnosis)
