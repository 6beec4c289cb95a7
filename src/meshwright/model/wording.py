"""A model's shape in one line, for people to recognise it, or to see that it is not the one they meant."""

from meshwright.basics.quantities import count_text
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import active_parameters, total_parameters


def described(arch: Architecture) -> str:
    """`llama-3-8b: 32 layers of width 4096, 32 heads (8 key-value), feed-forward 14336 gated, vocabulary 128256: 8.03 B
    parameters`. The count is exact, a tied matrix once; with experts also what one token passes through."""
    parts = [f"{arch.layers} layers of width {arch.hidden}", _attention(arch), _feed_forward(arch)]
    parts.append(f"vocabulary {arch.vocab}" + (" tied" if arch.tied else ""))
    each = f", {count_text(active_parameters(arch))} of them active for a token" if arch.experts else ""
    return f"{arch.name}: {', '.join(parts)}: {count_text(total_parameters(arch))} parameters{each}"


def _attention(arch: Architecture) -> str:
    groups = f" ({arch.kv_heads} key-value)" if arch.kv_heads != arch.heads else ""
    latent = " of latent attention" if arch.latent is not None else ""
    wide = f" of {arch.head_dim}" if arch.latent is None and arch.heads * arch.head_dim != arch.hidden else ""
    if arch.sliding_window is None:
        return f"{arch.heads} heads{groups}{wide}{latent}"
    inside = arch.layers - len(arch.global_layers)
    where = "" if inside == arch.layers else f" in {inside} layers"
    kind = "chunks" if arch.chunked else "a window"
    return f"{arch.heads} heads{groups}{wide}{latent}, {kind} of {arch.sliding_window} tokens{where}"


def _feed_forward(arch: Architecture) -> str:
    gated = " gated" if arch.gated else ""
    if not arch.experts:
        return f"feed-forward {arch.ffn_hidden}{gated}"
    shared = f" and {arch.shared_experts} shared" if arch.shared_experts else ""
    dense = f", {len(arch.dense_layers)} dense layers of {arch.dense_width}" if arch.dense_layers else ""
    return f"{arch.experts} experts of {arch.ffn_hidden}{gated}, {arch.active_experts} a token{shared}{dense}"
