"""What `memory` adds to a prediction, as the parts of its answer: recipe, advice, a request explained, what fits."""

from collections.abc import Iterable, Mapping

from meshwright.basics.quantities import GIB
from meshwright.files.outputs_memory import (
    AdvicePart,
    FitPart,
    MatchPart,
    OomPart,
    RecipePart,
    RecipeStatePart,
    TensorPart,
)
from meshwright.files.plan import Plan
from meshwright.model.units import compact
from meshwright.planner.fit import Largest
from meshwright.planner.oom import Explanation
from meshwright.planner.plan_tensor import PlanTensor
from meshwright.planner.relief import Relief
from meshwright.predictor import groups
from meshwright.predictor.recipe import recipe_of


def recipe_part(plan: Plan) -> RecipePart:
    """Bytes a parameter as the framework holds them, and over how many ranks the ZeRO stage shards each."""
    training, layout, cluster = plan.setup.proposal.training, plan.layout, plan.setup.proposal.cluster
    recipe = recipe_of(plan.setup)
    dense = groups.shard_group(cluster, layout).size
    expert = min(dense, groups.expert_gradient_group(cluster, layout).size)
    shared_from = {"weight": 3, "gradient": 2, "master": 1, "moments": 1}
    sizes = {name: float(getattr(recipe, name)) for name in shared_from}
    states = []
    for name, size in sizes.items():
        sharded = layout.zero >= shared_from[name] and (name != "gradient" or layout.exchange == "micro-batch")
        ranks, expert_ranks = (dense, expert) if sharded else (1, 1)
        if size:
            part = {"state": name, "bytes_per_parameter": size, "ranks": ranks, "expert_ranks": expert_ranks}
            states.append(RecipeStatePart.model_validate(part))
    here = sum(state.bytes_per_parameter / state.ranks for state in states)
    words = " + ".join(
        f"{state.bytes_per_parameter:g} {state.state}{f' / {state.ranks}' if state.ranks > 1 else ''}"
        for state in states
    )
    settings = {
        "training.precision": training.precision, "training.optimizer": training.optimizer,
        "training.gradient_dtype": training.gradient_dtype, "layout.zero": str(layout.zero),
        "layout.recompute": layout.recompute, "batch.micro_batch": str(plan.batch.micro_batch),
        "search.runnable_by": plan.setup.runnable_by,
    }  # fmt: skip
    return RecipePart(
        text=f"{words} = {here:.3g} B a parameter", states=states, bytes_per_parameter=here, settings=settings
    )


def _spelled(change: Mapping[str, object]) -> dict[str, object]:
    """Stages in their short spelling, as a plan has them."""
    return {
        key: [list(compact(stage)) for stage in value] if key == "layout.stages" and isinstance(value, tuple) else value
        for key, value in change.items()
    }


def advice_parts(found: Iterable[Relief]) -> list[AdvicePart]:
    """What would take less."""
    return [
        AdvicePart(
            change=_spelled(one.change.keys), label=one.change.label,
            before_gib=one.before.fullest.total / GIB, after_gib=one.after.fullest.total / GIB,
            saved_gib=one.saved / GIB, spare_gib=(one.after.limit - one.after.fullest.total) / GIB,
            p_oom=one.after.p_oom, verdict=one.after.verdict, step_time_change=one.step_time,
            runnable_by=list(one.runners), as_asked=one.wanted_runner,
        )
        for one in found
    ]  # fmt: skip


def _tensor(one: PlanTensor) -> dict[str, object]:
    return {
        "name": one.name, "shape": list(one.shape), "dtype": one.dtype, "n_bytes": one.n_bytes,
        "block_bytes": one.block, "units": list(one.units), "pipeline_ranks": list(one.ranks), "why": one.why,
        "shrink": one.shrink, "expected": one.expected,
    }  # fmt: skip


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def oom_part(text: str, found: Explanation) -> OomPart:
    """A failed request and what it may have been for."""
    matches = [
        MatchPart.model_validate({**_tensor(match.tensor), "exact": match.exact, "read_as": match.read_as})
        for match in found.matches
    ]
    asked = found.request
    return OomPart(
        request=text, request_bytes=asked.size, read_as=[r.words for r in asked.readings], gpu=asked.gpu,
        pipeline_rank=found.rank,
        capacity_gib=_gib(asked.capacity), free_gib=_gib(asked.free), unused_gib=_gib(asked.unused),
        matches=matches, nearest=[TensorPart.model_validate(_tensor(one)) for one in found.nearest],
    )  # fmt: skip


def fit_parts(found: Iterable[Largest]) -> list[FitPart]:
    """The largest of each kind that fits."""
    return [
        FitPart(
            kind=one.what, safety=one.safety, now=one.now, largest=one.value,
            total_gib=None if one.held is None else one.held.fullest.total / GIB,
            p_oom=None if one.held is None else one.held.p_oom, next=one.beyond,
            next_gib=None if one.beyond_held is None else one.beyond_held.fullest.total / GIB,
            parameters=one.parameters,
        )
        for one in found
    ]  # fmt: skip
