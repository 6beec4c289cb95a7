"""What one unit keeps for its backward under the habits of the software that runs it.

`model/activations.py` counts the tensors that every software keeps; a stack adds its own or fuses some away: attention
scores that are stored, dropout masks, norms written out in operators, the activated gate (see `stacks.py`).
"""

from meshwright.model.activations import (
    Recompute,
    logits_bytes,
    matmul_input_bytes,
    unit_activation_bytes,
    value_bytes,
)
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import tensor_parameters
from meshwright.model.shapes import tensors_of
from meshwright.model.training import Training
from meshwright.model.units import Unit
from meshwright.model.variants import variant_of
from meshwright.predictor.compute import Share
from meshwright.predictor.memory_modules import alternate, dropped
from meshwright.predictor.stacks import Stack

_FP32 = 4


def kept_bytes(
    arch: Architecture, training: Training, unit: Unit, share: Share, mode: Recompute, stack: Stack
) -> float:
    """Bytes that one rank keeps of one unit and one micro-batch; logits are apart (`scores_of`)."""
    local = max(1, share.seq_len // share.cp)
    etp = share.etp if arch.experts else None
    modules = stack.recomputes if mode == "selective" else ()
    counted: Recompute = "none" if modules else mode
    plain = unit_activation_bytes(
        arch, unit, training, share.micro_batch, local, counted, share.tp, share.sp, etp, ep=share.ep
    )
    tokens, here = share.micro_batch * local, 1.0 - stack.activations_away
    if unit.kind in ("embed", "head"):
        here = 1.0
    if mode == "full" and unit.kind not in ("embed", "head"):
        if stack.recomputes_halves and unit.kind == "ffn":
            plain += round(tokens * value_bytes(training) * arch.hidden / (share.tp if share.sp else 1))
        return plain * here
    a_token = plain / tokens + _habits(arch, training, unit, share, counted, stack)
    if "alternate" in modules and unit.kind in ("attn", "ffn"):
        a_token = min(a_token, alternate(arch, training, unit, share))
    elif modules:
        a_token -= dropped(arch, training, unit, share, modules, stack.scores_bytes, a_token)
    return tokens * max(0.0, a_token) * here + cast_bytes(arch, training, unit, share, stack)


def cast_bytes(arch: Architecture, training: Training, unit: Unit, share: Share, stack: Stack) -> float:
    """Bytes of a unit's matrices in half precision that autocast makes for one forward: its backward needs them."""
    if not stack.autocast or training.precision not in ("bf16", "fp16"):
        return 0.0
    matrices = (tensor for tensor in tensors_of(arch, unit) if tensor.matmul)
    return 2.0 * sum(tensor_parameters(tensor, share.tp, share.ep, share.etp) for tensor in matrices)


def _habits(arch: Architecture, training: Training, unit: Unit, share: Share, mode: Recompute, stack: Stack) -> float:
    """Bytes a token beyond the tensors that every software keeps; negative where a fused kernel keeps fewer."""
    spread = share.tp if share.sp else 1
    attends, feeds = unit.kind in ("attn", "layer"), unit.kind in ("ffn", "layer")
    extra = 0.0
    if stack.dropout and unit.kind != "head":  # a mask of one byte a value after each half and after the embedding
        extra += (attends + feeds or 1) * arch.hidden / spread
    if mode != "none" and unit.kind not in ("embed", "head"):
        return extra
    if stack.keeps_all_gathered and unit.kind != "embed":  # the inputs of first matrices, of all ranks instead of one
        extra += (2 if unit.kind == "layer" else 1) * value_bytes(training) * arch.hidden * (1 - 1 / spread)
    if stack.norm_bytes:
        extra += stack.norm_bytes * _normed(arch, unit, share, spread)
    if attends and stack.scores_bytes:
        reach = min(share.seq_len, variant_of(arch, unit).window or share.seq_len)
        extra += stack.scores_bytes * arch.heads / share.tp * reach - _FP32 * arch.heads / share.tp  # no log-sums
    if attends and matmul_input_bytes(training) < value_bytes(training):  # the output matrix keeps it in 8 bits as well
        extra += matmul_input_bytes(training) * arch.heads * arch.value_dim / share.tp
    if attends and stack.attention_copies:
        extra += stack.attention_copies * value_bytes(training) * arch.heads * arch.head_dim / share.tp
    if attends and stack.keeps_gathered and spread > 1:  # the inputs of the first matrix, of all ranks instead of one
        extra += value_bytes(training) * arch.hidden * (1 - 1 / spread)
    if feeds and stack.weighs_inside and variant_of(arch, unit).experts:
        copies = arch.active_experts * share.etp / share.tp * min(training.expert_imbalance, share.ep)
        extra -= value_bytes(training) * arch.hidden * copies
    if feeds and arch.gated and stack.fused_gate:
        extra -= value_bytes(training) * _width(arch, unit, min(training.expert_imbalance, share.ep)) / share.tp
    return extra


def _normed(arch: Architecture, unit: Unit, share: Share, spread: int) -> float:
    """Values a token that pass through norms: those of hidden states and of latents, which `spread` ranks share, and
    queries and keys, each head on its tensor rank, whether they are normed head by head or all together."""
    norms = (tensor for tensor in tensors_of(arch, unit) if "norm" in tensor.name and tensor.name.endswith(".weight"))
    values = sum(norm.shape[0] for norm in norms if not norm.name.startswith(("q_norm", "k_norm"))) / spread
    if arch.qk_norm and unit.kind in ("attn", "layer"):
        values += (arch.heads / share.tp + max(arch.kv_heads / share.tp, 1)) * arch.head_dim
    return values


def gradient_bytes_of(arch: Architecture, training: Training, unit: Unit, share: Share, stack: Stack) -> float:
    """Bytes of gradients of activations that one micro-batch's backward holds at a time inside a unit, beside the
    activations themselves: the hidden states' on both sides, and those between the unit's matrices."""
    if unit.kind in ("embed", "head"):
        return 0.0
    value, spread = value_bytes(training), share.tp if share.sp else 1
    tokens = share.micro_batch * max(1, share.seq_len // share.cp)
    between = 0.0
    if unit.kind in ("ffn", "layer"):
        crowd = min(training.expert_imbalance, share.ep)
        between = (2 if arch.gated else 1) * _width(arch, unit, crowd) / share.tp
        if variant_of(arch, unit).experts:  # of the token copies on their way back
            between += arch.active_experts * arch.hidden * share.etp / share.tp * crowd
    if unit.kind in ("attn", "layer"):
        heads = 2 * arch.heads + 2 * max(arch.kv_heads, share.tp)  # result, queries, keys, values
        inside = heads * arch.head_dim / share.tp
        if stack.scores_bytes:  # of the softmax's result and of the scores
            inside += 2 * arch.heads / share.tp * min(share.seq_len, variant_of(arch, unit).window or share.seq_len)
        between = max(between, inside)
    hidden = 2 * arch.hidden / spread
    return tokens * (value * (between + hidden) + 2 * stack.norm_bytes * arch.hidden / spread)


def _width(arch: Architecture, unit: Unit, crowd: float) -> float:
    """Columns of the feed-forward networks that one token passes through, `crowd` times as many of experts."""
    downs = [tensor for tensor in tensors_of(arch, unit) if tensor.name.endswith("down.weight")]
    return sum(down.shape[-1] * down.copies * down.active * (crowd if down.copies > 1 else 1) for down in downs)


def scores_of(
    arch: Architecture, training: Training, share: Share, stack: Stack, vocab_parallel: bool, chunk: int | None
) -> tuple[float, float, float]:
    """Bytes of the output scores [tokens, vocab] that wait for their backward; of what exists beside them while the
    loss is at work: together `logit_bytes` a score (half-precision scores, fp32 copy, fp32 gradient); and of their
    gradient alone, which waits where a schedule puts the head's weight gradient off.

    With `chunk` tokens at a time only a chunk's scores exist, and nothing waits: its backward runs at once.
    """
    tokens = share.micro_batch * max(1, share.seq_len // share.cp)
    scores = logits_bytes(arch, tokens if chunk is None else min(tokens, chunk), 1, share.tp if vocab_parallel else 1)
    each = stack.logit_bytes
    if training.precision == "fp32":  # all copies are as wide: scores, their logarithms, the gradient
        each = min(2 * each, 3.0 * _FP32)
    gradient = min(float(_FP32), each / 2)
    if chunk is not None:
        return 0.0, scores * each, 0.0
    waits = each - gradient if stack.waiting_score_bytes is None else stack.waiting_score_bytes
    return scores * waits, scores * (each - waits), float(scores * value_bytes(training))
