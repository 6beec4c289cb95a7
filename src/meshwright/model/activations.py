"""Bytes that a forward pass keeps for the backward pass.

Counted after Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equations 1-6,
with the saved tensors of today's layers: fused attention (no s² tensor; one fp32 log-sum per query and head instead),
fused norms (input and output, no fp32 copies), no dropout, gated feed-forward and grouped key-value heads.

    none        attention: norm input and output h, q, k, v, attention result; feed-forward: norm input and output h
                and every tensor between the matrices (gate, up, activated gate, product; or before and after the
                activation). A Llama layer without grouped heads: 16·s·b·h + 8·s·b·f bytes in half precision.
                Gated activations with clamps (gpt-oss) count like any other: fused, they save the same two inputs.
    selective   results of matrix products and of the attention only; norms, activations and products are recomputed.
    full        the input of each layer, held by its first unit.

A tensor group divides what lies between a column and a row matrix; sequence parallelism divides the rest as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import Unit, UnitKind
from meshwright.model.variants import Variant, variant_of

Recompute = Literal["none", "selective", "full"]

_FP32 = 4


def value_bytes(training: Training) -> int:
    """Bytes of one activation: 4 in fp32, otherwise 2 (fp8 recipes keep activations between matrices in bf16)."""
    return _FP32 if training.precision == "fp32" else 2


def matmul_input_bytes(training: Training) -> float:
    """Bytes of one saved matrix input: fp8 recipes keep the quantised copy (mxfp8: plus one scale per 32 values, nvfp4:
    half a byte and one per 16)."""
    quantised = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
    return quantised.get(training.precision, float(value_bytes(training)))


def boundary_bytes(arch: Architecture, training: Training, micro_batch: int, seq_len: int) -> int:
    """The hidden states of one micro-batch, [micro_batch, seq_len, hidden]: what one stage sends to the next."""
    return micro_batch * seq_len * arch.hidden * value_bytes(training)


def unit_activation_bytes(
    arch: Architecture,
    unit: Unit,
    training: Training,
    micro_batch: int,
    seq_len: int,
    recompute: Recompute = "none",
    tp: int = 1,
    sp: bool = False,
    etp: int | None = None,
    eager_norms: bool = False,
    ep: int = 1,
) -> int:
    """Bytes one tensor rank saves for backward of one unit and one micro-batch (for context parallelism pass the
    local `seq_len`). Logits and loss are apart: `loss_bytes`. With "full", a stage that begins in the middle of a
    layer holds its received input too (`boundary_bytes`), which is not counted here. With experts on `ep` ranks it is
    the rank that gets most tokens: `expert_imbalance` times the mean, or all of them.
    `eager_norms`: RMS norms written out in PyTorch operators, as in `transformers`, keep 4 bytes a value more."""
    crowd = min(training.expert_imbalance, ep)
    of = _Of(arch, variant_of(arch, unit), training, recompute, tp, tp if sp else 1, tp if etp is None else etp, crowd)
    per_token = _PER_TOKEN[unit.kind](of)
    if eager_norms and arch.norm == "rms" and (recompute == "none" or unit.kind == "head"):
        per_token += _eager_norms(of)
    return round(per_token * micro_batch * seq_len)


@dataclass(frozen=True, slots=True)
class _Of:
    """What is counted: `spread` ranks share what lies outside the matrices, `etp` ranks cut one expert, and the rank
    holds `crowd` times the mean share of dispatched tokens."""

    arch: Architecture
    variant: Variant
    training: Training
    recompute: Recompute
    tp: int
    spread: int
    etp: int
    crowd: float

    @property
    def value(self) -> int:
        """Bytes of one activation."""
        return value_bytes(self.training)

    @property
    def stored(self) -> float:
        """Bytes of one saved matrix input."""
        return matmul_input_bytes(self.training)

    @property
    def unit_input(self) -> float:
        """The hidden states of one token."""
        return self.value * self.arch.hidden / self.spread

    @property
    def key_heads(self) -> float:
        """Key-value heads on one rank: at least one."""
        return max(self.arch.kv_heads / self.tp, 1)


def _eager_norms(of: _Of) -> float:
    """In fp32 the normalised value beside input and output; in half precision also the input as an fp32 copy."""
    arch, kind = of.arch, of.variant.kind
    halves = {"attn": -(-arch.layer_norms // 2), "ffn": arch.layer_norms // 2, "layer": arch.layer_norms, "head": 1}
    extra = halves.get(kind, int(arch.embed_norm)) * arch.hidden / of.spread
    if kind in ("attn", "layer"):
        if arch.latent is not None:
            extra += ((arch.latent.query_rank or 0) + arch.latent.kv_rank) / of.spread
        elif arch.qk_norm and arch.qk_norm_weight:
            extra += (arch.heads / of.tp + of.key_heads) * arch.head_dim
    return _FP32 * extra


def _embed(of: _Of) -> float:
    indices = 8.0  # int64; the output is the input of the first layer and counted there
    return indices + (of.unit_input if of.arch.embed_norm else 0.0)


def _attn(of: _Of) -> float:
    if of.recompute == "full":
        return of.unit_input
    return of.unit_input * _norm_inputs(of) + _attention(of)


def _ffn(of: _Of) -> float:
    if of.recompute == "full":
        return 0.0
    return of.unit_input * _norm_inputs(of) + _feed_forward(of)


def _norm_inputs(of: _Of) -> int:
    """Inputs of full-width norms that a half-layer saves; a norm on the way out (Gemma 2) has one of its own. Where
    the only norm is on the way out (OLMo 2) its input takes the place of the norm's output: the same bytes."""
    return max(1, of.arch.layer_norms // 2) if of.recompute == "none" else 1


def _layer(of: _Of) -> float:
    if of.recompute == "full":
        return of.unit_input
    saved = _attention(of) + _feed_forward(of)
    if of.recompute == "none" and of.arch.layer_norms == 1:  # one norm output feeds both halves: counted twice
        saved -= of.stored * of.arch.hidden / of.spread
    return of.unit_input + saved


def _head(of: _Of) -> float:
    return (of.value + of.stored) * of.arch.hidden / of.spread


_PER_TOKEN: dict[UnitKind, Callable[[_Of], float]] = {
    "embed": _embed, "attn": _attn, "ffn": _ffn, "layer": _layer, "head": _head,
}  # fmt: skip


def _attention(of: _Of) -> float:
    """Bytes a token between the norm and the residual: norm output, q, k, v, attention result, log-sums. A window or
    a sink changes none of them, as long as the attention is fused."""
    arch, heads = of.arch, of.arch.heads / of.tp
    saved = of.value * (heads * arch.query_dim + of.key_heads * (arch.query_dim + arch.value_dim))
    saved += of.value * heads * arch.value_dim + _FP32 * heads
    if arch.latent is not None:  # the compressed vectors, which the norms behind them read
        compressed = (arch.latent.query_rank or 0) + arch.latent.kv_rank + arch.latent.rope_dim
        saved += of.value * compressed / of.spread
    if of.recompute == "selective":
        return saved
    if arch.latent is not None:  # and the norms' results, from which the matrices restore q, k and v
        saved += of.stored * ((arch.latent.query_rank or 0) + arch.latent.kv_rank) / of.spread
    elif arch.qk_norm:
        saved += of.value * (heads + of.key_heads) * arch.head_dim  # q and k before their norms
    return saved + of.stored * arch.hidden / of.spread


def _feed_forward(of: _Of) -> float:
    """Bytes a token between the norm and the residual: norm output, what lies between the matrices, routing."""
    arch, between = of.arch, _between(of)
    norm_output = of.stored * arch.hidden / of.spread if of.recompute == "none" else 0.0
    if not of.variant.experts:
        return between * arch.dense_width / of.tp + norm_output
    saved = between * arch.shared_width / of.tp
    # token copies a rank handles: each tensor rank sends its own share
    copies = arch.active_experts * of.etp / of.tp * of.crowd
    saved += copies * between * arch.ffn_hidden / of.etp
    # the dispatched copies are the experts' matrix inputs; their results are kept to weigh them by the router
    saved += copies * arch.hidden * (of.stored + of.value)
    saved += 2 * _FP32 * arch.experts / of.spread  # router logits and probabilities
    if arch.shared_gate:  # the shared experts' result is kept to weigh it, and so is the weight
        saved += (of.value * arch.hidden + of.value) / of.spread
    return saved + norm_output


def _between(of: _Of) -> float:
    """Bytes for each column of the feed-forward width: values before the activation, after it, and their product."""
    before = of.value * (2 if of.arch.gated else 1)
    if of.recompute == "selective":
        return before
    activated_gate = of.value if of.arch.gated else 0
    return before + activated_gate + of.stored


def logits_bytes(arch: Architecture, tokens: int, bytes_per_value: int, tp: int = 1) -> int:
    """One copy of the output scores [tokens, vocab / tp]; a vocabulary-parallel loss divides them by `tp`."""
    return tokens * -(-arch.vocab // tp) * bytes_per_value


def loss_bytes(
    arch: Architecture,
    training: Training,
    micro_batch: int,
    seq_len: int,
    tp: int = 1,
    vocab_parallel: bool = True,
    chunk: int | None = None,
) -> int:
    """Peak bytes of logits and loss of one micro-batch: the scores in the compute dtype, an fp32 copy (or the saved
    log-probabilities, in fp32 training) and the fp32 gradient. With `chunk` tokens at a time only a chunk exists."""
    tokens = micro_batch * seq_len
    if chunk is not None:
        tokens = min(tokens, chunk)
    per_value = value_bytes(training) + 2 * _FP32
    return logits_bytes(arch, tokens, per_value, tp if vocab_parallel else 1)
