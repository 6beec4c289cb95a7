"""From a row of a measured table to the plan that was measured, with everything that had to be assumed.

What a row leaves open is decided as the software of that date would: an unknown recompute mode is the least that fits.
"""

from dataclasses import dataclass, replace
from typing import Literal

from meshwright.basics.errors import InputError
from meshwright.files.plan import Plan
from meshwright.files.prediction import DOES_NOT_FIT, StageMemory
from meshwright.files.rows import Row
from meshwright.files.rows_sense import nonsense
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import RECOMPUTE, Layout, Recompute
from meshwright.layout.proposal import Proposal, Wanted, proposal_of
from meshwright.planner.rows_cluster import row_cluster
from meshwright.planner.rows_layout import row_batch, row_layout, row_training
from meshwright.planner.rows_model import row_model
from meshwright.planner.rows_stack import row_stack
from meshwright.predictor.memory import rank_memory


@dataclass(frozen=True, slots=True)
class Configuration:
    """A row as a plan without a prediction. `assumed` lists, for people, what the row did not say."""

    row: Row
    plan: Plan
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be predicted, and why: it contradicts itself, or lacks what no planner could guess."""

    row: Row
    reason: str
    kind: Literal["nonsense", "missing"]


def configuration_of(row: Row) -> Configuration | Skipped:
    """The plan that a row measured, or why there is none. Never raises for what a row may contain."""
    wrong = nonsense(row)
    if wrong:
        return Skipped(row, "; ".join(wrong), "nonsense")
    missing = [name for name in ("gpu", "gpus") if not getattr(row, name)]
    if missing:
        return Skipped(row, f"not stated: {', '.join(missing)}", "missing")
    try:
        return _configuration(row)
    except InputError as error:
        return Skipped(row, "; ".join(str(complaint) for complaint in error.complaints), "missing")


def _configuration(row: Row) -> Configuration:
    how = row_stack(row)
    arch, about_model = row_model(row)
    cluster, about_cluster = row_cluster(row)
    training, about_training = row_training(row, how.stack)
    stated = next((mode for mode in RECOMPUTE if row.recompute.lower() == mode), None)
    layout, about_layout = row_layout(row, arch, cluster, how, stated or "none")
    batch, about_batch = row_batch(row, layout.dp)
    proposal = Proposal(arch, cluster, training, batch.global_batch, batch.seq_len, Wanted())
    setup = Setup(name=row.name, proposal=proposal, runnable_by=how.runner, stack=how.name)
    assumed = (*how.assumed, *about_model, *about_cluster, *about_training, *about_layout, *about_batch)
    if stated is None:
        layout = least_recompute(setup, layout, batch)
        assumed = (*assumed, f"recompute {layout.recompute}: the least that fits")
    setup = replace(setup, proposal=proposal_of(proposal, layout, batch))
    return Configuration(row, Plan(setup, layout, batch), assumed)


def least_recompute(setup: Setup, layout: Layout, batch: Batch) -> Layout:
    """The layout with the least recompute that fits: full where none does, because the row did run."""
    modes: tuple[Recompute, ...] = RECOMPUTE
    for mode in modes:
        found = replace(layout, recompute=mode)
        limit = setup.proposal.cluster.memory_bytes
        if mode == modes[-1] or all(_fits(stage, limit) for stage in rank_memory(setup, found, batch)):
            return found
    raise AssertionError("unreachable: the last mode is always taken")


def _fits(stage: StageMemory, limit: int) -> bool:
    if stage.p_oom is not None:
        return stage.p_oom < DOES_NOT_FIT
    return stage.total <= (limit if stage.limit is None else stage.limit)
