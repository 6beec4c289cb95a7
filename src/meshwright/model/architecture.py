"""The shape of a decoder-only transformer, as plain numbers."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model. Sizes are elements, never bytes.

    `family` is the Hugging Face `model_type` ("llama", "gpt2", ...) or "plain" for dimensions typed by hand.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int  # of one dense feed-forward network, or of one expert
    vocab: int
    gated: bool = True  # SwiGLU-like: three matrices instead of two
    tied: bool = False  # the output matrix is the embedding
    experts: int = 0  # 0: dense
    active_experts: int = 0
    shared_experts: int = 0
    norm: Literal["rms", "layer"] = "rms"  # "layer" norms have a bias as well
    qk_norm: bool = False
    qkv_bias: bool = False
    attention_out_bias: bool = False
    ffn_bias: bool = False
    positions: Literal["rope", "learned", "alibi"] = "rope"
    max_positions: int = 0  # rows of a learned position table; 0 when there is none
    parallel_residual: bool = False  # one unit a layer (GPT-NeoX, Falcon)
    layer_norms: int = 2  # norms of width hidden in one layer: 1 in Falcon-7B, 4 in Gemma 2 and 3
    embed_norm: bool = False  # a norm after the embedding (BLOOM)
    sliding_window: int | None = None
    config_path: str | None = None  # the config.json it was read from: the trainer builds from it
