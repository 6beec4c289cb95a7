"""What selective recompute keeps: without single modules (Megatron-Core's `recompute_modules`), or by operation."""

from collections.abc import Sequence

from meshwright.model.activations import matmul_input_bytes, value_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import Unit
from meshwright.model.variants import variant_of
from meshwright.predictor.compute import Share


def dropped(
    arch: Architecture,
    training: Training,
    unit: Unit,
    share: Share,
    modules: Sequence[str],
    scores_bytes: float,
    kept: float,
) -> float:
    """Bytes a token of `kept`, what a unit keeps without recompute, that selective recompute of these modules saves.

    core_attn: attention scores (nothing where attention is fused). layernorm: results of the norms before the halves.
    moe_act: the experts' activated values. mla_up_proj: queries, keys and values of latent attention. mlp, moe: all of
    a dense network, or of a mixture of experts, but its input.
    """
    if unit.kind in ("embed", "head"):
        return 0.0
    value, stored, spread = value_bytes(training), matmul_input_bytes(training), share.tp if share.sp else 1
    attends, feeds = unit.kind in ("attn", "layer"), unit.kind in ("ffn", "layer")
    experts = variant_of(arch, unit).experts
    saved = 0.0
    if "core_attn" in modules and attends and scores_bytes:
        reach = min(share.seq_len, variant_of(arch, unit).window or share.seq_len)
        saved += scores_bytes * arch.heads / share.tp * reach
    if "layernorm" in modules:
        saved += (attends + feeds) * stored * arch.hidden / spread
    if "mla_up_proj" in modules and attends and arch.latent is not None:
        saved += value * arch.heads / share.tp * (2 * arch.query_dim + arch.value_dim)
    whole = "moe" if experts else "mlp"
    if feeds and whole in modules and unit.kind == "ffn":
        return max(saved, kept - (value + stored) * arch.hidden / spread)  # its input, before and after the norm
    if "moe_act" in modules and feeds and experts:
        crowd = min(training.expert_imbalance, share.ep)
        saved += stored * arch.active_experts * arch.ffn_hidden / share.tp * crowd
    return min(saved, kept)


def alternate(arch: Architecture, training: Training, unit: Unit, share: Share) -> float:
    """Bytes a token that a half-layer keeps when every other matrix product is recomputed, and all that lies between
    (torchtitan's selective checkpointing by operation): the layer's input, the attention's result, and the products of
    queries, values, gate and the way down, in the order query, key, value, output, gate, up, down."""
    value, spread, tp = value_bytes(training), share.tp if share.sp else 1, share.tp
    hidden = arch.hidden / spread
    if unit.kind == "attn":
        heads, keys = arch.heads / tp, max(arch.kv_heads / tp, 1)
        return value * (hidden + heads * (arch.query_dim + arch.value_dim) + keys * arch.value_dim) + 4 * heads
    crowd = min(training.expert_imbalance, share.ep) if variant_of(arch, unit).experts else 1.0
    copies = (arch.active_experts * crowd + arch.shared_experts) if variant_of(arch, unit).experts else 1
    width = arch.ffn_hidden if variant_of(arch, unit).experts else arch.dense_width
    return value * copies * (width / tp + (hidden if arch.gated else 0.0))
