"""Device seconds of each unit for one micro-batch: a roofline of its kernels, or measured times where there are any.

Forward: matrix products (shape-aware efficiency) + fused attention + element-wise work at memory speed. Backward: two
products for each (input and weight gradients), attention 2.5 times. What the host needs to launch the kernels counts
where it is longer than the device's own time: small work is bound by it. Communication is apart (`exchanges.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, Recompute
from meshwright.layout.recomputed import recomputed_units
from meshwright.model.activations import value_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.flops import attention_flops_per_token, unit_forward_flops
from meshwright.model.shapes import Tensor, tensors_of
from meshwright.model.states import gradient_bytes
from meshwright.model.training import Training
from meshwright.model.units import Unit, units_of
from meshwright.model.variants import Variant, alike, variant_of
from meshwright.predictor import constants
from meshwright.predictor.kernels import Speed, fused_attention_s, gemm_s, plain_attention_s, speed_of
from meshwright.predictor.stacks import stack_of


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Device seconds of one unit and one micro-batch on one rank.

    `backward_s` = `input_backward_s` + `weight_backward_s`, and includes `recompute_s`. `host_s` is the part of
    forward and backward, recompute left out, during which the device waits for the host. `slack_*` is by how much the
    host's work is longer than the device's (negative where it is shorter, minus infinity where it is not known):
    communication within that hides behind the host.
    """

    forward_s: float
    backward_s: float
    input_backward_s: float
    weight_backward_s: float
    recompute_s: float
    host_s: float = 0.0
    slack_forward_s: float = float("-inf")
    slack_backward_s: float = float("-inf")

    @property
    def total_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True)
class Share:
    """How one rank shares the work of a unit: the degrees that matter, and its micro-batch."""

    micro_batch: int
    seq_len: int
    tp: int = 1
    sp: bool = False
    cp: int = 1
    ep: int = 1
    etp: int = 1
    recompute: Recompute = "none"

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank."""
        return max(1, self.micro_batch * self.seq_len // self.cp)


def share_of(layout: Layout, batch: Batch) -> Share:
    """The share of a layout's ranks; `etp` follows tp where experts are not cut otherwise."""
    return Share(
        batch.micro_batch, batch.seq_len, layout.tp, layout.sp, layout.cp, layout.ep, layout.etp, layout.recompute
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """Device seconds of the kernels of a unit, and how many kernels the forward launches."""

    products: float  # forward
    input_products: float
    weight_products: float
    attention: float
    attention_backward: float
    elements: float
    elements_backward: float
    kernels: float
    norms: float  # parts of `elements`
    activation: float

    @property
    def forward(self) -> float:
        """All of it."""
        return self.products + self.attention + self.elements


def _crowd(training: Training, share: Share) -> float:
    """Tokens of the fullest expert rank over the mean: never more than all of them."""
    return min(training.expert_imbalance, share.ep)


def _tokens(tensor: Tensor, share: Share, crowd: float) -> int:
    """Tokens that one copy of a matrix on one rank meets: of an expert's, those of `crowd` times the mean."""
    if tensor.copies > 1:  # each rank's tokens meet `active · copies` experts; those held here serve ep ranks
        return max(1, round(crowd * share.tokens * tensor.active * share.ep * share.etp / share.tp))
    if tensor.split is None and share.sp:  # a matrix that every rank has whole works on the rank's own tokens
        return -(-share.tokens // share.tp)
    return share.tokens


def _products(
    tensor: Tensor, share: Share, speed: Speed, stored: float, gradient: float, crowd: float
) -> tuple[float, float, float, float, float]:
    """Of a matrix on one rank: seconds in forward, input gradient and weight gradient, and the bytes that casts of its
    input and of its output's gradient move where products are quantised. `gradient` bytes are read and written for each
    gradient that is added to."""
    expert = tensor.copies > 1
    cut = share.etp if expert else share.tp
    rows, columns = tensor.shape
    if tensor.split in ("column", "vocab"):
        rows = -(-rows // cut)
    elif tensor.split == "row":
        columns = -(-columns // cut)
    copies = -(-tensor.copies // share.ep) if expert else 1
    tokens = _tokens(tensor, share, crowd)
    half = tensor.split == "vocab" or tensor.split is None or (expert and speed.half_experts)  # nor head and routers
    cast = 0.0 if half else speed.cast * tokens * copies
    return (
        gemm_s(speed, tokens, rows, columns, stored, copies, half=half),
        gemm_s(speed, tokens, columns, rows, stored, copies, half=half),
        gemm_s(speed, rows, columns, tokens, stored, copies, 2 * gradient, half=half),
        cast * columns,
        cast * rows,
    )


def _element_bytes(
    arch: Architecture, variant: Variant, share: Share, size: int, crowd: float, beside: float
) -> tuple[float, float, float]:
    """Bytes a token that the element-wise kernels of a forward read and write on one rank: all of them, and those of
    the norms and of the activation function among them. `beside`: the share of the dispatch, and of the sorting of
    tokens for it, that runs beside other work."""
    hidden, spread = float(arch.hidden), share.tp if share.sp else 1
    norm, residual = 2 * hidden / spread, 3 * hidden / spread
    attention = 2 * arch.query_dim * (arch.heads + arch.kv_heads) / share.tp
    if arch.latent is not None:  # norms of the compressed vectors
        attention += 2 * ((arch.latent.query_rank or 0) + arch.latent.kv_rank) / spread
    activation, permuted = (3 if arch.gated else 2) * arch.dense_width / share.tp, 0.0
    if variant.experts:
        width = crowd * arch.ffn_hidden * arch.active_experts + arch.shared_width
        activation = (3 if arch.gated else 2) * width / share.tp
        permuted = crowd * (1 - beside) * constants.PERMUTED.value * hidden * arch.active_experts / share.tp
    match variant.kind:
        case "embed":
            return size * 2 * hidden, 0.0, 0.0
        case "attn":
            norms = norm * max(1, arch.layer_norms // 2)
            if variant.window is not None:
                attention += constants.SCAN.value * arch.scan_width / share.tp
            return size * (norms + residual + attention), size * norms, 0.0
        case "ffn":
            norms = norm * max(1, arch.layer_norms // 2)
            return size * (norms + residual + activation + permuted), size * norms, size * activation
        case "layer":
            norms = norm * arch.layer_norms
            both = norms + 4 * hidden / spread + attention + activation + permuted
            return size * both, size * norms, size * activation
        case "head":
            return size * norm, size * norm, 0.0


def _softmax_is_fused(arch: Architecture, share: Share) -> bool:
    """Does Megatron's kernel of scale, mask and softmax take these scores? It works on four rows of heads at a time
    (megatron/model/fused_softmax.py, `is_kernel_available`)."""
    rows = share.micro_batch * max(1, arch.heads // share.tp)
    return rows % 4 == 0 and share.seq_len % 4 == 0 and 16 < share.seq_len <= 4096


def _attention(arch: Architecture, unit: Unit, share: Share, speed: Speed) -> tuple[float, float]:
    """Seconds of scores, softmax and their product with the values, forward and backward."""
    flops = attention_flops_per_token(arch, unit, share.seq_len) * share.tokens / share.tp
    if not flops:
        return 0.0, 0.0
    heads = share.micro_batch * max(1.0, arch.heads / share.tp)
    if speed.scores_bytes:
        forward, backward = plain_attention_s(speed, heads, share.seq_len // share.cp, share.seq_len, arch.query_dim)
        if not _softmax_is_fused(arch, share):
            scores = heads * (share.seq_len // share.cp) * share.seq_len
            byte_s = scores * constants.SCORES_TRAFFIC.value / speed.bandwidth
            return forward + constants.SOFTMAX_TRAFFIC[0] * byte_s, backward + constants.SOFTMAX_TRAFFIC[1] * byte_s
        return forward, backward
    return fused_attention_s(speed, flops, heads * share.seq_len / share.cp / 128, arch.query_dim)


def _work(arch: Architecture, training: Training, unit: Unit, share: Share, speed: Speed) -> _Work:
    size, variant = value_bytes(training), variant_of(arch, unit)
    crowd, gradient = _crowd(training, share), float(gradient_bytes(training))
    each = [_products(one, share, speed, size, gradient, crowd) for one in tensors_of(arch, unit) if one.matmul]
    forward, inputs, weights, cast_f, cast_b = (
        (sum(column) for column in zip(*each, strict=True)) if each else [0.0] * 5
    )
    core_f, core_b = _attention(arch, unit, share, speed)
    scale = speed.passes * share.tokens / speed.bandwidth
    elements, norms, activation = (
        scale * part for part in _element_bytes(arch, variant, share, size, crowd, speed.beside)
    )
    loss = (0.0, 0.0)
    if unit.kind == "head":
        scores = share.tokens * arch.vocab / share.tp * speed.logit_bytes / speed.bandwidth
        loss = constants.LOSS.value * scores, constants.LOSS.value / 2 * scores
    kernels = constants.FORWARD_KERNELS[unit.kind].value
    if speed.scores_bytes and core_f and not _softmax_is_fused(arch, share):
        kernels += constants.SOFTMAX_KERNELS.value
    if variant.experts:
        held = -(-arch.experts // share.ep)
        kernels += constants.EXPERT_KERNELS.value + held * constants.EACH_EXPERT_KERNELS.value
    return _Work(
        forward, inputs, weights, core_f, core_b, elements + cast_f / speed.bandwidth + loss[0],
        2 * elements + cast_b / speed.bandwidth + loss[1], kernels, norms, activation,
    )  # fmt: skip


def _with_host(device_s: float, kernels: float, speed: Speed) -> tuple[float, float, float]:
    """(seconds, of which the device waits for the host, the host's work less the device's) of that much device work in
    that many kernels."""
    busy = device_s + kernels * speed.gap_s
    host = kernels * speed.launch_s
    if speed.asynchronous:
        return max(busy, host), max(0.0, host - busy), host - busy
    return busy + host, host, float("-inf")


def _again(variant: Variant, work: _Work, share: Share, speed: Speed, recomputes: tuple[str, ...]) -> float:
    """Seconds of what selective recompute repeats: attention and element-wise work, or the modules that the software
    names."""
    if not recomputes:
        return _with_host(work.attention + work.elements, work.kernels / 2, speed)[0]
    found = 0.0
    if variant.kind in ("attn", "layer"):
        found += work.attention if "core_attn" in recomputes else 0.0
        found += work.products / 3 if "mla_up_proj" in recomputes else 0.0
    if variant.kind in ("ffn", "layer"):
        if ("moe" if variant.experts else "mlp") in recomputes:
            found += work.products + work.elements
        elif variant.experts and "moe_act" in recomputes:
            found += work.activation
    return found + (work.norms if "layernorm" in recomputes else 0.0)


def roofline_cost(
    arch: Architecture, training: Training, unit: Unit, share: Share, speed: Speed, recomputes: tuple[str, ...] = ()
) -> UnitCost:
    """The roofline cost of one unit. Units of the same variant cost the same. `recomputes`: the modules of selective
    recompute, by Megatron's names; empty for attention and all element-wise work."""
    work = _work(arch, training, unit, share, speed)
    back_kernels = work.kernels * constants.BACKWARD_KERNELS_FACTOR.value
    forward, host_f, slack_f = _with_host(work.forward, work.kernels, speed)
    # The two halves are not waited for one by one: the host runs ahead through both.
    whole, host_b, slack_b = _with_host(
        work.input_products + work.attention_backward + work.elements_backward + work.weight_products, back_kernels,
        speed,
    )  # fmt: skip
    weight, _, _ = _with_host(work.weight_products, back_kernels / 2, speed)
    weight = min(weight, whole)
    if training.task == "lora":  # the big matrices are frozen: no weight gradients worth their name
        whole, host_b, slack_b = _with_host(
            work.input_products + work.attention_backward + work.elements_backward, back_kernels, speed
        )
        weight = 0.0
    again = 0.0
    if unit.kind in ("attn", "ffn", "layer"):
        if share.recompute == "full":
            again, slack_b = forward, slack_b + slack_f
        elif share.recompute == "selective":
            again = _again(variant_of(arch, unit), work, share, speed, recomputes)
    return UnitCost(forward, whole + again, whole - weight + again, weight, again, host_f + host_b, slack_f, slack_b)


def _flops(arch: Architecture, unit: Unit, tokens: int, seq_len: int) -> float:
    """Model FLOPs, with a floor of the bytes it handles so that units without products scale with tokens."""
    return unit_forward_flops(arch, unit, tokens, seq_len) + tokens * arch.hidden


def from_measured(
    arch: Architecture, unit: Unit, time: UnitTime, measured: MeasuredUnits, share: Share, roofline: UnitCost
) -> UnitCost:
    """Measured times brought to another micro-batch, tensor degree or recompute mode.

    Times scale with the rank's model FLOPs. Recompute is taken out of the measured backward and put in as the new
    layout asks: full at what the run measured of it, else at one forward, selective at the roofline's share of one.
    The halves of the backward keep the roofline's proportion. A backward is never taken to be shorter than half a
    forward.
    """
    per_layer = unit.kind in ("attn", "ffn", "layer")
    some = _recompute_share(roofline) * time.forward_s
    repeats = {"full": time.recompute_s or time.forward_s, "selective": some} if per_layer else {}
    pure = max(time.backward_s - repeats.get(measured.recompute, 0.0), 0.5 * time.forward_s)
    scale = _flops(arch, unit, share.tokens, share.seq_len) / share.tp
    scale /= _flops(arch, unit, measured.micro_batch * measured.seq_len, measured.seq_len) / measured.tp
    forward, backward, again = time.forward_s * scale, pure * scale, repeats.get(share.recompute, 0.0) * scale
    plain = roofline.backward_s - roofline.recompute_s
    weight = backward * (roofline.weight_backward_s / plain if plain > 0 else 0.5)
    return UnitCost(forward, backward + again, backward - weight + again, weight, again)


def _recompute_share(roofline: UnitCost) -> float:
    """What selective recompute repeats, as a share of the forward."""
    if not roofline.recompute_s:  # the roofline is of another recompute mode
        return constants.SELECTIVE_SHARE.value
    return min(1.0, roofline.recompute_s / roofline.forward_s)


def same_conditions(measured: MeasuredUnits, share: Share) -> bool:
    """True when the measured times hold as they are."""
    return (measured.micro_batch, measured.seq_len, measured.tp, measured.recompute) == (
        share.micro_batch, share.seq_len, share.tp, share.recompute,
    )  # fmt: skip


def costs_by_unit(
    setup: Setup,
    share: Share,
    measured: MeasuredUnits | None = None,
    speed: Speed | None = None,
    units: Sequence[Unit] | None = None,
) -> dict[str, UnitCost]:
    """The cost of every unit of the model under one share; recompute alike on all layers. Units that cost the same
    hold the same object, unless they were measured."""
    proposal = setup.proposal
    arch, training = proposal.arch, proposal.training
    stack = stack_of(setup)
    speed = speed or speed_of(proposal.cluster.device, training.precision, stack)
    known: dict[int, UnitCost] = {}
    costs: dict[str, UnitCost] = {}
    for unit, variant in zip(units or units_of(arch), alike(arch), strict=True):
        if variant not in known:
            known[variant] = roofline_cost(arch, training, unit, share, speed, stack.recomputes)
        costs[unit.name] = known[variant]
        if measured is not None and (time := measured.units.get(unit.name)) is not None:
            costs[unit.name] = from_measured(arch, unit, time, measured, share, known[variant])
    return costs


def unit_costs(
    setup: Setup, layout: Layout, batch: Batch, measured: MeasuredUnits | None = None
) -> dict[str, UnitCost]:
    """Device seconds of every unit for one micro-batch on one rank of the layout, communication excluded.

    `measured` holds device seconds of units that a run measured; they are used in place of the roofline, rescaled
    when micro-batch, tensor degree or recompute differ. Raises InputError when the device lacks the precision.
    """
    share = share_of(layout, batch)
    costs = costs_by_unit(setup, share, measured)
    if layout.recompute == "full" and layout.recompute_layers is not None:
        again = recomputed_units(layout)
        plain = costs_by_unit(setup, replace(share, recompute="none"), measured)
        costs = {name: cost if name in again else plain[name] for name, cost in costs.items()}
    return costs


def seconds_by_unit(costs: Mapping[str, UnitCost]) -> dict[str, float]:
    """Forward plus backward of every unit: what a partition balances."""
    return {name: cost.total_s for name, cost in costs.items()}
