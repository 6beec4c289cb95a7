"""From a row of a measured table to the plan that was measured, with everything that had to be assumed.

What a row leaves open is decided as the software of that date would: an unknown recompute mode is the least that fits.
"""

from dataclasses import dataclass, replace
from typing import Literal

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB
from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.files.rows import Row
from meshwright.files.rows_sense import nonsense
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import RECOMPUTE, Layout, Recompute
from meshwright.layout.proposal import Proposal, Wanted, proposal_of
from meshwright.planner.rows_cluster import row_cluster
from meshwright.planner.rows_layout import row_batch, row_layout, row_training
from meshwright.planner.rows_memory import ran_out
from meshwright.planner.rows_model import row_model
from meshwright.planner.rows_stack import row_stack
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.stacks import stack_of

_STRAINED = 0.75  # probability of running out up to which a run that is known to have run is believed to fit
_MORE_THAN_ALL = 1.1  # of a device's memory: no peak, whether GB or GiB is meant


@dataclass(frozen=True, slots=True)
class Configuration:
    """A row as a plan without a prediction. `assumed` lists, for people, what the row did not say."""

    row: Row
    plan: Plan
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be predicted, and why: it contradicts itself, it lacks what no planner could guess, or the
    predictor broke on it (a defect of ours)."""

    row: Row
    reason: str
    kind: Literal["nonsense", "missing", "defect"]


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


def _configuration(row: Row) -> Configuration | Skipped:
    how = row_stack(row)
    arch, about_model = row_model(row)
    cluster, about_cluster = row_cluster(row)
    most = cluster.memory_bytes / GIB
    if row.peak_memory_gib is not None and row.peak_memory_gib > _MORE_THAN_ALL * most:
        reason = (
            f"peak_memory_gib {row.peak_memory_gib:g}: {cluster.device.name} has {most:.0f} GiB (MiB, or GB of all?)"
        )
        return Skipped(row, reason, "nonsense")
    training, about_training = row_training(row, how.stack)
    stated = next((mode for mode in RECOMPUTE if row.recompute.lower() == mode), None)
    layout, about_layout = row_layout(row, arch, cluster, how, stated or "none")
    batch, about_batch = row_batch(row, layout.dp)
    proposal = Proposal(arch, cluster, training, batch.global_batch, batch.seq_len, Wanted())
    setup = Setup(name=row.name, proposal=proposal, runnable_by=how.runner, stack=how.name)
    assumed = (*how.assumed, *about_model, *about_cluster, *about_training, *about_layout, *about_batch)
    if not ran_out(row):
        setup, layout, decided = _plausible(row, setup, layout, batch, stated is not None)
        assumed = (*assumed, *decided)
    elif stated is None:
        layout = replace(layout, recompute=how.stack.recompute)
        assumed = (*assumed, f"recompute {layout.recompute}, as usual for {how.stack.name}")
    setup = replace(setup, proposal=proposal_of(proposal, layout, batch))
    return Configuration(row, Plan(setup, layout, batch), assumed)


def _plausible(
    row: Row, setup: Setup, layout: Layout, batch: Batch, recompute_stated: bool
) -> tuple[Setup, Layout, tuple[str, ...]]:
    """What the row leaves open, decided so that the plan fits, because it did run: first the least recompute; then, if
    the ZeRO stage was not printed either, full sharding; then DeepSpeed's checkpoints in CPU memory."""
    stage_stated = row.zero_stage is not None and "zero_stage" not in row.inferred
    free = not stage_stated and layout.dp * layout.cp > 1 and layout.pp == 1 and layout.zero != 3
    shardings = [layout.zero, 3] if free else [layout.zero]
    stacks = [setup.stack]
    if setup.stack.startswith("deepspeed") and "away" not in setup.stack:
        stacks.append(f"{setup.stack}+away-100")
    found, fitting = layout, False
    for stack in stacks:
        setup = replace(setup, stack=stack)
        for zero in shardings:
            found = replace(layout, zero=zero)
            found = found if recompute_stated else least_recompute(setup, found, batch)
            if stack != stacks[0] and found.recompute != "full":
                continue  # only checkpoints move to CPU memory
            fitting = _all_fit(setup, found, batch)
            if fitting:
                break
        if fitting:
            break
    if not fitting:
        setup, found = replace(setup, stack=stacks[0]), replace(found, zero=layout.zero)
    some = "" if found.recompute_layers is None else f" for {found.recompute_layers} layers of a stage"
    decided = [] if recompute_stated else [f"recompute {found.recompute}{some}: the least that fits"]
    if found.zero != layout.zero:
        decided.append(f"ZeRO-{found.zero}: it does not fit with ZeRO-{layout.zero}")
    if setup.stack != stacks[0]:
        decided.append("activations in CPU memory: it does not fit otherwise")
    return setup, found, tuple(decided)


def least_recompute(setup: Setup, layout: Layout, batch: Batch) -> Layout:
    """The layout with the least recompute that fits, no less than the software recomputes by default; full where
    nothing fits, because the row did run. Megatron recomputes as many layers of a stage as it must."""
    default = stack_of(setup).recompute
    modes: tuple[Recompute, ...] = RECOMPUTE[RECOMPUTE.index(default) :]
    for mode in modes[:-1]:
        found = replace(layout, recompute=mode)
        if _all_fit(setup, found, batch):
            return found
    full = replace(layout, recompute="full")
    if default == "full" or setup.runnable_by != "megatron":
        return full
    fewest, most = 1, max(sum(unit.endswith(".attn") for unit in stage) for stage in layout.stages)
    while fewest < most:
        middle = (fewest + most) // 2
        if _all_fit(setup, replace(full, recompute_layers=middle), batch):
            most = middle
        else:
            fewest = middle + 1
    some = replace(full, recompute_layers=fewest)
    return some if _all_fit(setup, some, batch) else full


def _all_fit(setup: Setup, layout: Layout, batch: Batch) -> bool:
    limit = setup.proposal.cluster.memory_bytes
    return all(_fits(stage, limit) for stage in rank_memory(setup, layout, batch))


def _fits(stage: StageMemory, limit: int) -> bool:
    if stage.p_oom is not None:
        return stage.p_oom < _STRAINED
    return stage.total <= (limit if stage.limit is None else stage.limit)
