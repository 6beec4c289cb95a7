"""The measured rows with their plans, for the scripts that judge and fit step times."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.files.plan import Plan
from meshwright.files.rows import Row, read_rows
from meshwright.planner.configurations import Skipped, configuration_of
from meshwright.planner.rows_stack import year_month
from meshwright.planner.validate_measured import extrapolated, measured_step
from meshwright.predictor.costs import step_costs
from meshwright.predictor.stacks import stack_of
from meshwright.predictor.step import pipeline_ends, step_seconds
from meshwright.predictor.table import layout_table, stage_table

DATA = Path(__file__).parents[1] / "data" / "measurements"


@dataclass(frozen=True)
class Timed:
    """One configuration with its measured step; a re-measured one with the latest of them."""

    row: Row
    plan: Plan
    seconds: float
    ranked_only: bool

    @property
    def source(self) -> str:
        """The document it comes from, whatever its version."""
        return self.row.source.split("@")[0]

    @property
    def origin(self) -> str:
        """The repository or paper: what is held out as a whole."""
        return " ".join(self.source.split()[:1] if self.source.startswith("github:") else self.source.split()[:4])

    @property
    def stack(self) -> str:
        """The software stack without modifiers."""
        return self.plan.setup.stack.split("+")[0]


def load(path: Path, trusts: str = "AB") -> tuple[list[Timed], list[tuple[str, str]]]:
    """Complete rows of those trusts with a measured step, every row by itself; and what was skipped, with reasons."""
    found, skipped = [], []
    for row in read_rows(path):
        if not row.complete or row.trust not in trusts:
            continue
        made = configuration_of(row)
        if isinstance(made, Skipped):
            skipped.append((row.name, made.reason))
            continue
        step = measured_step(row, made.plan)
        if isinstance(step, str):
            skipped.append((row.name, step))
            continue
        found.append(Timed(row, made.plan, step.seconds, extrapolated(row)))
    return found, skipped


def latest(rows: Sequence[Timed]) -> list[Timed]:
    """The latest of each re-measured configuration."""
    groups: dict[str, list[Timed]] = defaultdict(list)
    for one in rows:
        groups[one.row.config_group or one.row.name].append(one)
    return [max(group, key=lambda one: year_month(one.row.date) or (0, 0)) for group in groups.values()]


def predicted_s(plan: Plan) -> float:
    """Seconds of a step, without memory and the rest of a prediction."""
    stages = stage_table(layout_table(plan.setup, plan.layout, plan.batch), plan.layout.stages, plan.layout.placement)
    costs = step_costs(plan.setup, plan.layout, plan.batch, stages)
    return step_seconds(pipeline_ends(plan.layout, plan.batch, costs, stack_of(plan.setup)), costs)


def log_error(one: Timed) -> float:
    """ln(predicted / measured)."""
    return math.log(predicted_s(one.plan) / one.seconds)
