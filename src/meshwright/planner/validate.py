"""Every row of a measured table beside its prediction."""

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.basics.errors import InputError
from meshwright.files.plan import Plan
from meshwright.files.prediction import DOES_NOT_FIT, IMPOSSIBLE, Prediction
from meshwright.files.rows import Row
from meshwright.layout.degrees import describe
from meshwright.planner.configurations import Configuration, Skipped, configuration_of
from meshwright.planner.rows_memory import MemoryFigure, counted_gib, memory_figure, memory_kind, ran_out
from meshwright.planner.validate_measured import MeasuredStep, extrapolated, measured_step
from meshwright.planner.validate_sense import impossible
from meshwright.predictor.step import predict


@dataclass(frozen=True, slots=True)
class Judged:
    """A row, what it ran (`plan`), what had to be assumed for that, and what is predicted.

    `step` is the measured step or why there is none. `memory` is the measured peak, None without one; `peak_gib` the
    predicted figure of the kind that the row's source counts.
    """

    row: Row
    plan: Plan
    prediction: Prediction
    assumed: tuple[str, ...]
    step: MeasuredStep | str
    memory: MemoryFigure | None
    peak_gib: float

    @property
    def extrapolated(self) -> bool:
        """May the row be ranked, and not timed?"""
        return extrapolated(self.row)

    @property
    def step_error(self) -> float | None:
        """Predicted over measured step time, less 1; None without a measured one, or with one that was extrapolated."""
        if isinstance(self.step, str) or self.extrapolated:
            return None
        return self.prediction.step_time_s / self.step.seconds - 1

    @property
    def in_range(self) -> bool | None:
        """Does the measured step lie in the predicted range?"""
        if isinstance(self.step, str):
            return None
        low, high = self.prediction.step_time_range_s
        return low <= self.step.seconds <= high

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured peak, less 1; None without a measured one."""
        return None if self.memory is None else self.memory.error(self.peak_gib)

    @property
    def scored(self) -> bool:
        """Is there anything to compare?"""
        return not isinstance(self.step, str) or self.memory is not None

    @property
    def complete(self) -> bool:
        """Does the table call the row complete, or where it has no such column, is it?"""
        return self.row.stated_complete if self.row.complete is None else self.row.complete

    @property
    def layout_text(self) -> str:
        """The layout and the micro-batch, with the row's own word for a schedule that counts as another."""
        stated, known = self.row.schedule, self.plan.layout.schedule
        own = f" ({stated})" if self.plan.layout.pp > 1 and known not in stated else ""
        return f"{describe(self.plan.layout)}{own if stated else ''}, micro-batch {self.plan.batch.micro_batch}"

    @property
    def p_oom(self) -> float:
        """The predicted probability of running out of memory, of the fullest rank."""
        return max(stage.p_oom or 0.0 for stage in self.prediction.memory)


@dataclass(frozen=True, slots=True)
class MemoryVerdicts:
    """Runs that ended for lack of memory (`out`) and how many of them were predicted not to fit (`foreseen`); runs that
    did not (`ran`) and how many were called impossible (`refused`)."""

    out: int
    foreseen: int
    ran: int
    refused: int


def judge(row: Row) -> Judged | Skipped:
    """One row. Never raises for what a row may contain: what the predictor breaks on is named as a defect."""
    try:
        found = configuration_of(row)
        return found if isinstance(found, Skipped) else _judged(found)
    except InputError as error:
        return Skipped(row, "; ".join(str(complaint) for complaint in error.complaints), "missing")
    except Exception as error:  # one row must not end the table
        return Skipped(row, f"a defect of meshwright: {type(error).__name__}: {error}", "defect")


def _judged(found: Configuration) -> Judged | Skipped:
    row, plan, prediction = found.row, found.plan, predict(found.plan)
    step, figure = measured_step(row, plan), None if ran_out(row) else memory_figure(row)
    wrong = impossible(prediction, step)
    if wrong:
        return Skipped(row, wrong, "nonsense")
    rank = None if figure is None else figure.rank
    peak = counted_gib(prediction.memory, memory_kind(row), rank)
    return Judged(row, plan, prediction, found.assumed, step, figure, peak)


def memory_verdicts(judged: Iterable[Judged]) -> MemoryVerdicts:
    """How well it is known which runs fit."""
    out = foreseen = ran = refused = 0
    for one in judged:
        if ran_out(one.row):
            out += 1
            foreseen += one.p_oom >= DOES_NOT_FIT
        else:
            ran += 1
            refused += one.p_oom >= IMPOSSIBLE
    return MemoryVerdicts(out, foreseen, ran, refused)
