"""Model FLOPs: what the mathematics needs, recompute never included. A multiply-add counts two.

Convention, to be stated wherever a figure is printed: every matrix product counts in full; attention scores count
only the pairs that a causal mask keeps (half of s², less with a sliding window); of the experts only the ones the
router picks; the output matrix counts, the embedding look-up does not; norms and activations are not counted.
Backward is twice forward: one product for the gradient of the input and one for that of the weight.
"""

from collections import Counter
from math import prod

from meshwright.model.architecture import Architecture
from meshwright.model.shapes import tensors_of
from meshwright.model.units import Unit, units_of
from meshwright.model.variants import alike, variant_of

CONVENTION = "model FLOPs without recompute; causal attention counted half; top-k experts only; embedding not counted"


def keys_per_query(seq_len: int, window: int | None = None, causal: bool = True, chunked: bool = False) -> float:
    """Mean number of keys a query attends to. Causal: s/2, or w - w²/2s for a window w shorter than s. `chunked`: a
    query looks back to the start of its chunk of w tokens, w/2 on average (the rest behind the last whole chunk: less).
    """
    if not causal:
        return float(seq_len)
    reach = seq_len if window is None else min(window, seq_len)
    if chunked:
        whole, rest = divmod(seq_len, reach)
        return (whole * reach**2 + rest**2) / (2 * seq_len)
    return reach * (1 - reach / (2 * seq_len))


def matmul_flops_per_token(arch: Architecture, unit: Unit) -> float:
    """Forward FLOPs of one token in the matrices of one unit: 2 · out · in, times the experts it passes."""
    return sum(
        2.0 * prod(tensor.shape) * tensor.copies * tensor.active for tensor in tensors_of(arch, unit) if tensor.matmul
    )


def attention_flops_per_token(arch: Architecture, unit: Unit, seq_len: int, causal: bool = True) -> float:
    """Forward FLOPs of one token in q·kᵀ and in scores·v: 2 · keys · heads · (width of a key + width of a value).
    Zero without attention."""
    if unit.kind not in ("attn", "layer"):
        return 0.0
    keys = keys_per_query(seq_len, variant_of(arch, unit).window, causal, arch.chunked)
    return 2.0 * keys * arch.heads * (arch.query_dim + arch.value_dim)


def unit_forward_flops(arch: Architecture, unit: Unit, tokens: int, seq_len: int, causal: bool = True) -> float:
    """FLOPs of one forward pass of `tokens` tokens, in sequences of `seq_len`, through one unit (all tensor ranks).
    `causal=False` counts the full s² of attention, as some published figures do."""
    per_token = matmul_flops_per_token(arch, unit) + attention_flops_per_token(arch, unit, seq_len, causal)
    return per_token * tokens


def step_model_flops(arch: Architecture, tokens: int, seq_len: int, causal: bool = True) -> float:
    """FLOPs of one training step over `tokens` tokens: forward and backward (3 × forward), without recompute."""
    units = units_of(arch)
    return 3.0 * sum(
        number * unit_forward_flops(arch, units[first], tokens, seq_len, causal)
        for first, number in Counter(alike(arch)).items()
    )
