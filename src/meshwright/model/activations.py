"""Bytes that a forward pass keeps for the backward pass.

Counted after Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", equations 1-6,
with the saved tensors of today's layers: fused attention (no s² tensor; one fp32 log-sum per query and head instead),
fused norms (input and output, no fp32 copies), no dropout, gated feed-forward and grouped key-value heads.

    none        attention: norm input and output h, q, k, v, attention result; feed-forward: norm input and output h
                and every tensor between the matrices (gate, up, activated gate, product; or before and after the
                activation). A Llama layer without grouped heads: 16·s·b·h + 8·s·b·f bytes in half precision.
    selective   results of matrix products and of the attention only; norms, activations and products are recomputed.
    full        the input of each layer, held by its first unit.

A tensor group divides what lies between a column and a row matrix; sequence parallelism divides the rest as well.
"""

from collections.abc import Callable
from typing import Literal

from meshwright.model.architecture import Architecture
from meshwright.model.shapes import tensors_of
from meshwright.model.training import Training
from meshwright.model.units import Unit

Recompute = Literal["none", "selective", "full"]

_FP32 = 4


def value_bytes(training: Training) -> int:
    """Bytes of one activation: 4 in fp32, otherwise 2 (fp8 recipes keep activations between matrices in bf16)."""
    return _FP32 if training.precision == "fp32" else 2


def matmul_input_bytes(training: Training) -> float:
    """Bytes of one saved matrix input: fp8 recipes keep the quantised copy (mxfp8: plus one scale per 32 values)."""
    return {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32}.get(training.precision, float(value_bytes(training)))


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
) -> int:
    """Bytes one tensor rank saves for backward of one unit and one micro-batch (for context parallelism pass the
    local `seq_len`). Logits and loss are apart: `loss_bytes`. With "full", a stage that begins in the middle of a
    layer holds its received input too (`boundary_bytes`), which is not counted here. Balanced experts assumed.
    `eager_norms`: RMS norms written out in PyTorch operators, as in `transformers`, keep 4 bytes a value more."""
    shards = tp if sp else 1
    per_token = _PER_TOKEN[unit.kind](arch, training, recompute, tp, shards, tp if etp is None else etp)
    if eager_norms and arch.norm == "rms" and (recompute == "none" or unit.kind == "head"):
        per_token += _eager_norms(arch, unit, tp, shards)
    return round(per_token * micro_batch * seq_len)


def _eager_norms(arch: Architecture, unit: Unit, tp: int, sp: int) -> float:
    """In fp32 the normalised value beside input and output; in half precision also the input as an fp32 copy."""
    wide = sum("norm" in tensor.name and tensor.shape == (arch.hidden,) for tensor in tensors_of(arch, unit))
    extra = wide * arch.hidden / sp
    if arch.qk_norm and unit.kind in ("attn", "layer"):
        extra += (arch.heads / tp + max(arch.kv_heads / tp, 1)) * arch.head_dim
    return _FP32 * extra


def _embed(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    indices = 8.0  # int64; the output is the input of the first layer and counted there
    return indices + (value_bytes(training) * arch.hidden / sp if arch.embed_norm else 0.0)


def _attn(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    unit_input = value_bytes(training) * arch.hidden / sp
    if recompute == "full":
        return unit_input
    return unit_input * _norm_inputs(arch, recompute) + _attention(arch, training, recompute, tp, sp)


def _ffn(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    if recompute == "full":
        return 0.0
    unit_input = value_bytes(training) * arch.hidden / sp
    return unit_input * _norm_inputs(arch, recompute) + _feed_forward(arch, training, recompute, tp, sp, etp)


def _norm_inputs(arch: Architecture, recompute: Recompute) -> int:
    """Inputs of full-width norms that a half-layer saves; a norm on the way out (Gemma 2) has one of its own."""
    return max(1, arch.layer_norms // 2) if recompute == "none" else 1


def _layer(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    unit_input = value_bytes(training) * arch.hidden / sp
    if recompute == "full":
        return unit_input
    saved = _attention(arch, training, recompute, tp, sp) + _feed_forward(arch, training, recompute, tp, sp, etp)
    if recompute == "none" and arch.layer_norms == 1:  # one norm output feeds both halves and was counted twice
        saved -= matmul_input_bytes(training) * arch.hidden / sp
    return unit_input + saved


def _head(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    return (value_bytes(training) + matmul_input_bytes(training)) * arch.hidden / sp


_PER_TOKEN: dict[str, Callable[[Architecture, Training, Recompute, int, int, int], float]] = {
    "embed": _embed, "attn": _attn, "ffn": _ffn, "layer": _layer, "head": _head,
}  # fmt: skip


def _attention(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int) -> float:
    """Bytes a token between the norm and the residual: norm output, q, k, v, attention result, log-sums."""
    value, stored = value_bytes(training), matmul_input_bytes(training)
    queries = arch.head_dim * arch.heads / tp
    keys = arch.head_dim * max(arch.kv_heads / tp, 1)
    saved = value * (queries + 2 * keys) + value * queries + _FP32 * arch.heads / tp
    if recompute == "selective":
        return saved
    if arch.qk_norm:
        saved += value * (queries + keys)  # q and k before their norms
    return saved + stored * arch.hidden / sp


def _feed_forward(arch: Architecture, training: Training, recompute: Recompute, tp: int, sp: int, etp: int) -> float:
    """Bytes a token between the norm and the residual: norm output, what lies between the matrices, routing."""
    dense_width = arch.ffn_hidden if not arch.experts else arch.ffn_hidden * arch.shared_experts
    saved = _between(arch, training, recompute) * dense_width / tp
    if arch.experts:
        value, stored = value_bytes(training), matmul_input_bytes(training)
        copies = arch.active_experts * etp / tp  # token copies a rank handles: each tensor rank sends its own share
        saved += copies * _between(arch, training, recompute) * arch.ffn_hidden / etp
        # the dispatched copies are the experts' matrix inputs; their results are kept to weigh them by the router
        saved += copies * arch.hidden * (stored + value)
        saved += 2 * _FP32 * arch.experts / sp  # router logits and probabilities
    norm_output = matmul_input_bytes(training) * arch.hidden / sp
    return saved + (norm_output if recompute == "none" else 0.0)


def _between(arch: Architecture, training: Training, recompute: Recompute) -> float:
    """Bytes for each column of the feed-forward width: values before the activation, after it, and their product."""
    before = value_bytes(training) * (2 if arch.gated else 1)
    if recompute == "selective":
        return before
    activated_gate = value_bytes(training) if arch.gated else 0
    return before + activated_gate + matmul_input_bytes(training)


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
