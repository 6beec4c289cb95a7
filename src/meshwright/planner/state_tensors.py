"""The tensors that hold a plan's training state, and the buffers that exchange it: by parameter, and flattened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from meshwright.basics.quantities import MIB
from meshwright.files.plan import Plan
from meshwright.model.parameters import stage_parameters, unit_parameters
from meshwright.model.shapes import Tensor, tensors_of
from meshwright.model.units import Unit, units_of
from meshwright.model.variants import Variant, variant_of
from meshwright.planner.plan_tensor import PlanTensor, ranks_with
from meshwright.predictor import groups
from meshwright.predictor.recipe import recipe_of

_BY_BYTES = {4: "fp32", 2: "bf16", 1: "uint8"}


@dataclass(frozen=True, slots=True)
class _Dtypes:
    """Of the states, as the framework that runs the plan holds them; None: it holds none."""

    weight: str
    gradient: str
    master: str | None
    moments: str | None


def _dtypes(plan: Plan) -> _Dtypes:
    training, recipe = plan.setup.proposal.training, recipe_of(plan.setup)
    half = "fp16" if training.precision == "fp16" else "bf16"
    each = recipe.moments // {"adamw": 2, "adamw-8bit": 2}.get(training.optimizer, 1)
    return _Dtypes(
        "fp32" if recipe.weight == 4 else half,
        "fp32" if recipe.gradient == 4 else half,
        _BY_BYTES[recipe.master] if recipe.master else None,
        {4: "fp32", 2: half, 1: "uint8"}.get(each),
    )


def state_tensors(plan: Plan) -> Iterator[PlanTensor]:
    """Weights, gradients, master copies and moments of each kind of parameter, the same flattened by pipeline rank,
    and what gathers and reduces them."""
    arch, layout = plan.setup.proposal.arch, plan.layout
    shards = groups.shard_group(plan.setup.proposal.cluster, layout).size if layout.zero else 1
    held: dict[Variant, list[Unit]] = {}
    for unit in units_of(arch):
        held.setdefault(variant_of(arch, unit), []).append(unit)
    for units in held.values():
        ranks = ranks_with(layout, [unit.name for unit in units])
        tensors = tensors_of(arch, units[0])
        for tensor in (*tensors, *_fused(tensors)):
            yield from _of_tensor(plan, units[0], tensor, ranks, shards)
        yield from _gathered(plan, units[0].kind, ranks, _parameters(plan, units[:1]), shards)
    yield from _gathered(plan, "layer", tuple(range(layout.pp)), _parameters(plan, _layer(plan)), shards)
    yield from _flat(plan, shards)
    yield from _bucket(plan)


def _fused(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Matrices that many implementations store in one: q, k and v; gate and up, of each kind of network."""
    by_name = {tensor.name: tensor for tensor in tensors}
    prefixes = sorted({name.removesuffix("gate.weight") for name in by_name if name.endswith("gate.weight")})
    for names in (("q", "k", "v"), *((f"{prefix}gate", f"{prefix}up") for prefix in prefixes)):
        for part in ("weight", "bias"):
            held = [by_name[key] for name in names if (key := f"{name}.{part}") in by_name]
            if len(held) == len(names):
                rows = sum(tensor.shape[0] for tensor in held)
                name = f"{'-'.join(name.rpartition('.')[2] for name in names)}.{part}"
                yield replace(held[0], name=name, shape=(rows, *held[0].shape[1:]))


def _parameters(plan: Plan, units: list[Unit]) -> int:
    layout = plan.layout
    return sum(unit_parameters(plan.setup.proposal.arch, unit, layout.tp, layout.ep, layout.etp) for unit in units)


def _layer(plan: Plan) -> list[Unit]:
    """The units of the last layer, which is as a model's layers mostly are."""
    arch = plan.setup.proposal.arch
    return [unit for unit in units_of(arch) if unit.layer == arch.layers - 1]


def _local_shape(tensor: Tensor, plan: Plan) -> tuple[int, ...]:
    layout = plan.layout
    degree = layout.etp if tensor.copies > 1 else layout.tp
    shape = list(tensor.shape)
    if tensor.split is not None:
        axis = len(shape) - 1 if tensor.split == "row" else 0
        others = prod(shape) // shape[axis]
        shape[axis] = tensor.local_size(degree) // tensor.copies // others
    return tuple(shape) if tensor.copies == 1 else (ceil(tensor.copies / layout.ep), *shape)


def _of_tensor(plan: Plan, unit: Unit, tensor: Tensor, ranks: tuple[int, ...], shards: int) -> Iterator[PlanTensor]:
    layout, dtypes = plan.layout, _dtypes(plan)
    whole = _local_shape(tensor, plan)
    shard = (ceil(whole[0] / shards), *whole[1:])
    fewer = f"layout.tp = {layout.tp * 2}" if tensor.split is not None else ""

    def of(name: str, dtype: str, sharded: bool, why: str, less: str) -> PlanTensor:
        ways = ", ".join(way for way in (less, fewer) if way)
        shape = shard if sharded else whole
        return PlanTensor(f"{name} of {tensor.name}", shape, dtype, (unit.kind,), ranks, why, ways)

    next_zero = f"layout.zero = {layout.zero + 1}" if layout.zero < 3 else "a larger shard group"
    yield of("weight", dtypes.weight, layout.zero == 3, "held for the whole run", "layout.zero = 3")
    half = "fp16" if plan.setup.proposal.training.precision == "fp16" else "bf16"
    if dtypes.weight == "fp32" and plan.setup.proposal.training.precision != "fp32":
        yield of("half-precision copy", half, False, "cast for each product, kept for its backward", "")
        yield of("half-precision gradient", half, False, "before it is added up in fp32", "")
    yield of("gradient", dtypes.gradient, layout.zero >= 2, "accumulated until the optimizer step", next_zero)
    if layout.zero >= 2:
        yield of("whole gradient", dtypes.gradient, False, "before it is reduced to a shard", "")
    if dtypes.master is not None:
        yield of(
            "master copy", dtypes.master, layout.zero >= 1, "the fp32 weights that the optimizer updates", next_zero
        )
    if dtypes.moments is not None:
        why = "allocated in the first optimizer step; AdamW has two"
        yield of("moment", dtypes.moments, layout.zero >= 1, why, f"{next_zero}, training.optimizer = adamw-8bit")
        why = "an intermediate of the optimizer step: a square root, a quotient"
        yield of("temporary", "fp32", layout.zero >= 1, why, f"{next_zero}, a fused optimizer")


def _gathered(plan: Plan, unit: str, ranks: tuple[int, ...], count: int, shards: int) -> Iterator[PlanTensor]:
    """What ZeRO-3 gathers before a unit, and what ZeRO-2 and 3 reduce after it."""
    layout, dtypes, training = plan.layout, _dtypes(plan), plan.setup.proposal.training
    whole = ceil(count / shards) * shards
    half = {"fp32": "fp32", "fp16": "fp16"}.get(training.precision, "bf16")
    if layout.zero == 3:
        why = "the parameters of the unit, gathered for its forward and again for its backward"
        for dtype in dict.fromkeys((half, dtypes.weight)):
            yield PlanTensor(
                "gathered parameters", (whole,), dtype, (unit,), ranks, why, "layout.zero = 2, smaller units"
            )
    if layout.zero >= 2:
        why = "the gradient of the unit, flattened for the reduce-scatter"
        for dtype in dict.fromkeys((dtypes.gradient, half)):
            yield PlanTensor("reduce-scatter input", (whole,), dtype, (unit,), ranks, why, "smaller units")


def _flat(plan: Plan, shards: int) -> Iterator[PlanTensor]:
    """The states of a pipeline rank in one tensor each, as Megatron-LM and DeepSpeed hold them."""
    arch, layout, dtypes = plan.setup.proposal.arch, plan.layout, _dtypes(plan)
    by_name = {unit.name: unit for unit in units_of(arch)}
    next_zero = f"layout.zero = {layout.zero + 1}" if layout.zero < 3 else "a larger shard group"
    for rank in range(layout.pp):
        units = [by_name[name] for stage in layout.stages_of(rank) for name in layout.stages[stage]]
        count = stage_parameters(arch, units, layout.tp, layout.ep, layout.etp)
        part = ceil(count / shards)

        def of(name: str, size: int, dtype: str, why: str, at: int = rank) -> PlanTensor:
            less = ", ".join((next_zero, f"layout.tp = {layout.tp * 2}", f"layout.pp = {layout.pp * 2}"))
            return PlanTensor(name, (size,), dtype, ("stage",), (at,), why, less)

        held = part if layout.zero >= 2 else count
        yield of("flat gradient buffer", held, dtypes.gradient, "all gradients of the rank in one buffer")
        if dtypes.master is not None:
            yield of("flat master copy", part, dtypes.master, "all fp32 weights of the rank in one buffer")
        if dtypes.moments is not None:
            yield of("flat moment", part, dtypes.moments, "one moment of all parameters of the rank")
        if layout.zero in (1, 2):
            yield of(
                "gathered parameters of the rank", count, dtypes.weight, "the new weights after the optimizer step"
            )


def _bucket(plan: Plan) -> Iterator[PlanTensor]:
    layout, dtypes = plan.layout, _dtypes(plan)
    if layout.dp * layout.cp > 1 and layout.zero <= 1:
        values = round(layout.bucket_mib * MIB) // (4 if dtypes.gradient == "fp32" else 2)
        why = "gradients travel in buckets of layout.bucket_mib"
        ranks = tuple(range(layout.pp))
        yield PlanTensor("gradient bucket", (values,), dtypes.gradient, ("exchange",), ranks, why, "layout.bucket_mib")
