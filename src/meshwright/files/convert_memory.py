"""From the memory of a plan's prediction to what `memory` prints."""

from collections.abc import Sequence

from meshwright.basics.quantities import GIB
from meshwright.files.convert import prediction_of, verdict_of
from meshwright.files.outputs import MemoryStagePart
from meshwright.files.outputs_memory import AdvicePart, FitPart, MemoryOutput, OomPart, RecipePart, TracedStagePart
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction, StageMemory, Verdict
from meshwright.model.units import compact

SEVERITY: tuple[Verdict, ...] = ("fits", "tight", "does not fit")


def stage_part(found: Prediction, rank: StageMemory) -> MemoryStagePart:
    """One pipeline rank."""
    limit = found.memory_limit_bytes if rank.limit is None else rank.limit
    return MemoryStagePart(
        pipeline_rank=rank.pipeline_rank, stages=list(rank.stages), total_gib=rank.total / GIB,
        total_gb=rank.total / 1e9, parts_gib={kind: size / GIB for kind, size in rank.parts.items()},
        range_gib=None if rank.range is None else (rank.range[0] / GIB, rank.range[1] / GIB),
        limit_gib=limit / GIB, p_oom=rank.p_oom, verdict=verdict_of(found, rank),
        in_flight=rank.in_flight, units_gib={kind: size / GIB for kind, size in rank.units.items()},
        moments_gib={moment: size / GIB for moment, size in rank.moments.items()},
    )  # fmt: skip


def memory_output(
    plan: Plan,
    recipe: RecipePart,
    advice: Sequence[AdvicePart] = (),
    *,
    oom: OomPart | None = None,
    fit: Sequence[FitPart] = (),
    traced: Sequence[TracedStagePart] = (),
    cut: bool = False,
) -> MemoryOutput:
    """Every byte of each pipeline rank by kind, with the answers that were asked for. `cut`: the file left its stages
    open, and they were cut to predict them."""
    found = prediction_of(plan)
    stages = [stage_part(found, rank) for rank in found.memory]
    chances = [stage.p_oom for stage in stages if stage.p_oom is not None]
    worst = max((stage.verdict for stage in stages), key=SEVERITY.index)
    return MemoryOutput(
        mode=found.mode, stages=stages, worst_stage=found.worst_memory.pipeline_rank,
        limit_gib=found.memory_limit_bytes / GIB, fits=worst != "does not fit", verdict=worst,
        p_oom=max(chances, default=None), recipe=recipe, advice=list(advice), oom=oom, fit=list(fit),
        traced=list(traced), cut=[list(compact(units)) for units in plan.layout.stages] if cut else [],
    )  # fmt: skip
