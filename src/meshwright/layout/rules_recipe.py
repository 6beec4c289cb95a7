"""Errors of the training recipe: what the device computes in, gradients, loss scale, adapters."""

from collections.abc import Mapping
from typing import get_args

from meshwright.cluster.device import Device
from meshwright.layout.problem import Explanation, Rule, spelled
from meshwright.layout.proposal import Proposal
from meshwright.model.architecture import Architecture
from meshwright.model.lora import is_target
from meshwright.model.shapes import tensors_of
from meshwright.model.training import Precision, Training
from meshwright.model.units import units_of

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
GRADIENT_DTYPES: Mapping[Precision, tuple[str, ...]] = {
    "fp32": ("fp32",), "fp16": ("fp32", "fp16"), "bf16": ("fp32", "bf16"), "fp8": ("fp32", "bf16"),
    "mxfp8": ("fp32", "bf16"), "nvfp4": ("fp32", "bf16"),
}  # fmt: skip


def _devices(p: Proposal) -> tuple[Device, ...]:
    """Every kind of device in the cluster."""
    return tuple({part.device.name: part.device for part in p.cluster.parts}.values()) or (p.cluster.device,)


def _computes_in(device: Device) -> tuple[Precision, ...]:
    """What a device multiplies in hardware; a CPU computes in any ordinary float."""
    can = ("fp32", "fp16", "bf16") if device.kind == "cpu" else tuple(device.peak_flops)
    return tuple(precision for precision in PRECISIONS if precision in can)


def _precision_holds(p: Proposal) -> bool:
    return all(p.training.precision in _computes_in(device) for device in _devices(p))


def _explain_precision(p: Proposal) -> Explanation:
    precision, devices = p.training.precision, _devices(p)
    lacking = [device for device in devices if precision not in _computes_in(device)]
    has = []
    for device in lacking:
        peaks = ", ".join(f"{dtype} {peak.value / 1e12:g}" for dtype, peak in device.peak_flops.items())
        has.append(f"{device.name} has no matrix units for {precision}; it has {peaks} TFLOP/s (dense)")
    shared = [one for one in PRECISIONS if all(one in _computes_in(device) for device in devices)]
    return Explanation("; ".join(has), (f"{spelled(p, 'training.precision')} = {', '.join(shared)}",))


def _gradients_hold(p: Proposal) -> bool:
    return p.training.gradient_dtype in GRADIENT_DTYPES[p.training.precision]


def _explain_gradients(p: Proposal) -> Explanation:
    precision, dtype = p.training.precision, p.training.gradient_dtype
    legal = GRADIENT_DTYPES[precision]
    why = {
        "fp32": "the backward makes fp32 gradients of fp32 weights, and nothing rounds them",
        "fp16": "bf16 keeps 8 bits of what fp16 computes with 11: sums over micro-batches lose the small ones",
    }.get(precision, "fp16 overflows above 65,504 and there is no loss scale in this precision")
    field = spelled(p, "training.gradient_dtype")
    return Explanation(f"{dtype} gradients do not go with {precision}: {why}", (f"{field} = {' or '.join(legal)}",))


def _loss_scale_holds(p: Proposal) -> bool:
    return p.training.loss_scale is None or p.training.precision == "fp16"


def _explain_loss_scale(p: Proposal) -> Explanation:
    training, field = p.training, spelled(p, "training.loss_scale")
    return Explanation(
        f"{field} = {training.loss_scale:g} belongs to fp16, whose gradients vanish below 6e-8; {training.precision} "
        f"has the range of fp32 and is not scaled",
        (f"leave out {field}", f"{spelled(p, 'training.precision')} = fp16"),
    )


def adapted_sides(arch: Architecture, training: Training) -> dict[str, int]:
    """The shorter side of each matrix that gets an adapter under task "lora", by name."""
    return {
        tensor.name: min(tensor.shape)
        for unit in units_of(arch)
        for tensor in tensors_of(arch, unit)
        if is_target(tensor, training)
    }


def _rank_holds(p: Proposal) -> bool:
    training = p.training
    return training.task != "lora" or training.lora_rank <= min(adapted_sides(p.arch, training).values())


def _explain_rank(p: Proposal) -> Explanation:
    sides, rank = adapted_sides(p.arch, p.training), p.training.lora_rank
    name = min(sides, key=sides.__getitem__)
    field = spelled(p, "training.lora_rank")
    return Explanation(
        f"an adapter of rank {rank} is larger than what it adapts: the shorter side of {name} is {sides[name]}, and no "
        f"matrix has a higher rank than that",
        (f"{field} from 1 to {sides[name]}",),
    )


RECIPE_RULES: tuple[Rule, ...] = (
    Rule("precision", "error", ("training.precision", "cluster.gpu"), _precision_holds, _explain_precision),
    Rule(
        "gradient-dtype", "error", ("training.gradient_dtype", "training.precision"),
        _gradients_hold, _explain_gradients,
    ),
    Rule("loss-scale", "error", ("training.loss_scale", "training.precision"), _loss_scale_holds, _explain_loss_scale),
    Rule("lora-rank", "error", ("training.lora_rank", "training.lora_targets"), _rank_holds, _explain_rank),
)  # fmt: skip
