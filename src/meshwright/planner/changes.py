"""Single changes to a plan that may take less memory, by family: within one the mildest comes first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from meshwright.basics.errors import InputError
from meshwright.files.patch import apply, value_text
from meshwright.files.plan import Plan
from meshwright.layout.batch import micro_batch_choices
from meshwright.layout.degrees import Layout
from meshwright.layout.rules import legal
from meshwright.planner.leveling import cut_by_time, level

CHUNK = 1024
"""Tokens whose logits exist at one time once the loss is chunked: small beside any model, large enough for a GEMM."""

_ROOMY = 0.85  # of the memory: a cut that needs no more is level enough
_LIST = 4  # more stages than that are not spelled out


@dataclass(frozen=True, slots=True)
class Change:
    """A change of `[layout]`, `[batch]` and `[training]` keys, and the plan after it, without a prediction."""

    family: str
    keys: Mapping[str, object]
    plan: Plan

    @property
    def label(self) -> str:
        """`layout.recompute = full`; long lists of stages in a word."""
        experts = bool(self.plan.setup.proposal.arch.experts)
        hidden = ("layout.placement", "layout.vpp", *(() if experts else ("layout.etp",)))
        shown = {key: value for key, value in self.keys.items() if key not in hidden}
        return ", ".join(f"{key} = {_shown(key, value)}" for key, value in shown.items())


def _shown(key: str, value: object) -> str:
    if key == "layout.stages" and isinstance(value, list | tuple) and len(value) > _LIST:
        return "cut anew"
    return {"True": "true", "False": "false", "None": "all of dp"}.get(text := value_text(key, value), text)


def changed(plan: Plan, family: str, keys: Mapping[str, object]) -> Change | None:
    """The plan after a change; None when it breaks the batch equation or a rule, or changes nothing."""
    training = {key.removeprefix("training."): value for key, value in keys.items() if key.startswith("training.")}
    try:
        after = apply(plan, {key: value for key, value in keys.items() if not key.startswith("training.")})
    except InputError:
        return None
    if training:
        recipe = replace(after.setup.proposal.training, **training)  # type: ignore[arg-type]
        after = replace(after, setup=replace(after.setup, proposal=replace(after.setup.proposal, training=recipe)))
    same = (after.layout, after.batch) == (plan.layout, plan.batch) and not training
    return None if same or not legal(after.setup.proposal) else Change(family, dict(keys), after)


def combined(plan: Plan, first: Change, second: Change) -> Change | None:
    """Both changes at once; None when they touch the same keys, or are not legal together."""
    if set(first.keys) & set(second.keys):
        return None
    return changed(plan, f"{first.family} + {second.family}", {**first.keys, **second.keys})


def single_changes(plan: Plan) -> Iterator[Change]:
    """Every legal change of one kind, the mildest of a family before the stronger ones."""
    for family, keys in _wanted(plan):
        found = changed(plan, family, keys)
        if found is not None:
            yield found
    yield from _degrees(plan)
    yield from _cuts(plan)


def _wanted(plan: Plan) -> Iterator[tuple[str, Mapping[str, object]]]:
    layout, training = plan.layout, plan.setup.proposal.training
    local = plan.batch.micro_tokens // layout.cp
    if layout.vocab_parallel is False and layout.tp > 1:
        yield "loss", {"layout.vocab_parallel": True}
    chunk = CHUNK if local > CHUNK else max(1, local // 4)
    if layout.loss_chunk is None or layout.loss_chunk > chunk:
        yield "loss", {"layout.loss_chunk": chunk}
    if layout.recompute == "none":
        yield "recompute", {"layout.recompute": "selective"}
    if layout.recompute != "full":
        layers = max(len({unit.split(".")[1] for unit in stage if "." in unit}) for stage in layout.stages)
        for first in range(1, layers):
            yield "first layers", {"layout.recompute": "full", "layout.recompute_layers": first}
        yield "recompute", {"layout.recompute": "full"}
    elif layout.recompute_layers is not None:
        yield "recompute", {"layout.recompute_layers": None}
    if layout.dp * layout.cp > 1:
        yield from (("zero", {"layout.zero": stage}) for stage in range(layout.zero + 1, 4))
    if layout.zero >= 2 and layout.exchange == "step":
        yield "exchange", {"layout.gradient_exchange": "micro-batch"}
    if layout.zero and layout.shard_group not in (None, layout.dp * layout.cp):
        yield "shard group", {"layout.shard_group": None}
    smaller = [
        size for size in micro_batch_choices(plan.batch.global_batch, layout.dp) if size < plan.batch.micro_batch
    ]
    yield from (("micro-batch", {"batch.micro_batch": size}) for size in reversed(smaller))
    if layout.tp > 1 and not layout.sp:
        yield "sequence parallelism", {"layout.sp": True}
    if training.precision != "fp32" and training.gradient_dtype == "fp32":
        yield "gradient dtype", {"training.gradient_dtype": "fp16" if training.precision == "fp16" else "bf16"}
    if training.optimizer == "adamw":
        yield "optimizer", {"training.optimizer": "adamw-8bit"}
    if layout.offload == "none":
        yield "offload", {"layout.offload": "optimizer"}
    if len(layout.placement) == layout.pp > 1 and layout.schedule == "gpipe":
        yield "schedule", {"layout.schedule": "1f1b"}


def _degrees(plan: Plan) -> Iterator[Change]:
    """A degree doubled on the same devices: half as many replicas, twice the micro-batches."""
    layout = plan.layout
    if layout.dp % 2:
        return
    half = {"layout.dp": layout.dp // 2}
    experts = bool(plan.setup.proposal.arch.experts)
    etp = {"layout.etp": layout.etp * 2} if layout.etp == layout.tp else {}
    tensor = changed(plan, "tp", {"layout.tp": layout.tp * 2, **half, **etp})
    context = changed(plan, "cp", {"layout.cp": layout.cp * 2, **half})
    spread = changed(plan, "ep", {"layout.ep": layout.ep * 2}) if experts else None
    yield from (found for found in (tensor, context, spread) if found is not None)
    deeper = replace(
        layout, pp=layout.pp * 2, dp=layout.dp // 2, schedule="1f1b" if layout.pp == 1 else layout.schedule
    )
    yield from _recut(plan, "pp", deeper, max(1, len(layout.placement) // layout.pp))


def _cuts(plan: Plan) -> Iterator[Change]:
    """Another partition, or the same ranks with one stage each under 1F1B, which keeps the fewest micro-batches."""
    layout = plan.layout
    if layout.pp == 1:
        return
    leveled = changed(plan, "stages", {"layout.stages": level(plan.setup, layout, plan.batch, _enough(plan)).stages})
    if leveled is not None:
        yield leveled
    if len(layout.placement) > layout.pp:
        yield from _recut(plan, "schedule", replace(layout, schedule="1f1b"), 1)


def _enough(plan: Plan) -> float:
    return _ROOMY * plan.setup.proposal.cluster.memory_bytes


def _recut(plan: Plan, family: str, wanted: Layout, chunks: int) -> Iterator[Change]:
    """The plan under other degrees or another schedule, its stages cut anew by time, then leveled by memory."""
    names = ("pp", "dp", "schedule", "vpp", "stages", "placement")
    batch = replace(plan.batch, micro_batches=max(1, plan.batch.micro_batches * plan.layout.dp // wanted.dp))
    try:
        timed = cut_by_time(plan.setup, wanted, batch, chunks)
    except (InputError, ValueError):
        return
    for layout in dict.fromkeys((timed, level(plan.setup, timed, batch, _enough(plan)))):
        keys = {f"layout.{n}": getattr(layout, n) for n in names if getattr(layout, n) != getattr(plan.layout, n)}
        found = changed(plan, family, keys)
        if found is not None:
            yield found
