"""What `memory` adds to a prediction, as the parts of its answer: recipe, advice, a request explained, what fits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

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
from meshwright.predictor.recipe import full_recipe


def _states(plan: Plan) -> Iterator[tuple[str, float, bool]]:
    """Name, bytes a parameter, and whether the ZeRO stage shards it."""
    recipe, layout = full_recipe(plan.setup), plan.layout
    yield "weight", recipe.weight, layout.zero == 3
    yield "8-bit weight", recipe.quantised, layout.zero == 3
    yield "gradient", recipe.gradient, layout.zero >= 2 and layout.exchange == "micro-batch"
    yield "second gradient", recipe.second_gradient if layout.zero == 2 else 0.0, True
    yield "master", recipe.master, layout.zero >= 1
    yield "moments", recipe.matrix_moments, layout.zero >= 1
    yield "other", recipe.unsharded, False
    yield "other", recipe.sharded, layout.zero >= 1


def recipe_part(plan: Plan) -> RecipePart:
    """Bytes a parameter as the framework holds them, and over how many ranks the ZeRO stage shards each."""
    training, layout, cluster = plan.setup.proposal.training, plan.layout, plan.setup.proposal.cluster
    dense = groups.shard_group(cluster, layout).size
    expert = min(dense, groups.expert_gradient_group(cluster, layout).size)
    away = {"none": (), "optimizer": ("master", "moments")}.get(layout.offload)
    states = [
        RecipeStatePart(
            state=name,  # type: ignore[arg-type]
            bytes_per_parameter=size, ranks=dense if sharded else 1, expert_ranks=expert if sharded else 1,
            of="adapters" if training.task == "lora" and "weight" not in name else "all parameters",
            on="host" if away is None or name in away else "device",
        )
        for name, size, sharded in _states(plan)
        if size
    ]  # fmt: skip
    here = [state for state in states if state.on == "device" and state.of == "all parameters"]
    total = sum(state.bytes_per_parameter / state.ranks for state in here)
    settings = {
        "training.precision": training.precision, "training.optimizer": training.optimizer,
        "training.gradient_dtype": training.gradient_dtype, "layout.zero": str(layout.zero),
        "layout.recompute": layout.recompute, "batch.micro_batch": str(plan.batch.micro_batch),
        "search.runnable_by": plan.setup.runnable_by,
    }  # fmt: skip
    return RecipePart(
        text=_recipe_text(states, here, total), states=states, bytes_per_parameter=total, settings=settings
    )


def _recipe_text(states: Sequence[RecipeStatePart], here: Sequence[RecipeStatePart], total: float) -> str:
    """`2 weight + 4 gradient + 4 master / 8 + 8 moments / 8 = 7.5 B a parameter`, then what lies elsewhere."""

    def words(found: Iterable[RecipeStatePart]) -> str:
        parts = ((one, f" / {one.ranks}" if one.ranks > 1 else "") for one in found)
        return " + ".join(f"{one.bytes_per_parameter:.3g} {one.state}{shared}" for one, shared in parts)

    text = f"{words(here) or '0'} = {total:.3g} B a parameter"
    adapters = words(one for one in states if one.on == "device" and one.of == "adapters")
    away = words(one for one in states if one.on == "host")
    return text + (f"; adapters also {adapters}" if adapters else "") + (f"; in CPU memory {away}" if away else "")


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
