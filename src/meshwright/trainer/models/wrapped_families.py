"""The families whose Hugging Face modules are trained as they are: where each keeps its parts. Imports no torch.

A family is one row. Adding one is a row here, and a line in the tests that compare losses and gradients.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.trainer.models.names import PART

_QKV = tuple(name + PART for name in ("q", "k", "v"))
_GATE_UP = tuple(name + PART for name in ("gate", "up"))


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Module paths of a family: those of the whole below `base`, those of a layer below the layer.

    `attention` and `feed_forward` are the children of a layer that make up its halves, each with its norms;
    `fused` the matrices whose rows are several matrices, one after the other.
    """

    base: str = "model"
    embedding: str = "embed_tokens"
    positions: str = ""  # a learned table of positions
    layers: str = "layers"
    norm: str = "norm"
    head: str = "lm_head"  # as the family's files name it
    attention: tuple[str, ...] = ("input_layernorm", "self_attn")
    feed_forward: tuple[str, ...] = ("post_attention_layernorm", "mlp")
    attention_module: str = "self_attn"
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    transposed: bool = False  # matrices of layers are stored as (input, output)
    norm_start: float = 1.0  # initial weight of a norm
    wide_norms: bool = False  # of queries and keys, over all heads together
    tensor: bool = True  # can be shared out over tensor ranks

    def half_of(self, child: str) -> str:
        """The half of a layer ("attn" or "ffn") that a child of it belongs to. Raises KeyError for neither."""
        halves = dict.fromkeys(self.attention, "attn") | dict.fromkeys(self.feed_forward, "ffn")
        return halves[child]


_LLAMA = Wrapped()
_GEMMA = Wrapped(
    attention=("input_layernorm", "self_attn", "post_attention_layernorm"),
    feed_forward=("pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm"),
    norm_start=0.0,  # the norm multiplies by 1 + weight
)

WRAPPED: Mapping[str, Wrapped] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "phi3": Wrapped(fused={"self_attn.qkv_proj": _QKV, "mlp.gate_up_proj": _GATE_UP}),
    "olmo2": Wrapped(
        attention=("self_attn", "post_attention_layernorm"), feed_forward=("mlp", "post_feedforward_layernorm"),
        wide_norms=True,
    ),
    "gpt2": Wrapped(
        base="transformer", embedding="wte", positions="wpe", layers="h", norm="ln_f", attention=("ln_1", "attn"),
        feed_forward=("ln_2", "mlp"), attention_module="attn", fused={"attn.c_attn": _QKV}, transposed=True,
    ),
    "gpt_neox": Wrapped(
        base="gpt_neox", embedding="embed_in", norm="final_layer_norm", head="embed_out",
        attention=("input_layernorm", "attention"), attention_module="attention",
    ),
    "mixtral": Wrapped(tensor=False),
}  # fmt: skip


def unit_of(name: str, family: str, parallel: bool) -> str:
    """The unit of a parameter by its name inside the trainer: `model.layers.7.mlp.up_proj.weight` of a Llama is in
    `layers.7.ffn`. `parallel`: a layer is one unit. Raises KeyError for a name that the family does not have."""
    parts = name.split(".")
    if parts[0] == "lm_head" or parts[1] == "norm":
        return "head"
    if parts[1] in ("embed_tokens", "embed_positions"):
        return "embed"
    if parallel:
        return f"layers.{parts[2]}"
    return f"layers.{parts[2]}.{WRAPPED.get(family, _LLAMA).half_of(parts[3])}"
