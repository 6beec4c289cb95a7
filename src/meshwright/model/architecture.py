"""The shape of a decoder-only transformer, as plain numbers."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): keys and values are stored as one
    compressed vector a token. Widths in elements; the query is compressed too where `query_rank` is given."""

    kv_rank: int
    nope_dim: int  # of a query or key head, without position
    rope_dim: int  # of a query head, with position; the key's is one for all heads
    value_dim: int
    query_rank: int | None = None


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
    shared_ffn_hidden: int = 0  # width of all shared experts together; 0: ffn_hidden times their number
    shared_gate: bool = False  # a gate of one output beside the shared experts (Qwen 2 MoE)
    dense_layers: tuple[int, ...] = ()  # layers of a model with experts that have a dense network instead
    dense_ffn_hidden: int = 0  # width of those; 0: ffn_hidden
    router_bias: bool = False
    latent: LatentAttention | None = None  # instead of q, k and v; kv_heads is then heads, head_dim nope + rope
    norm: Literal["rms", "layer"] = "rms"  # "layer" norms have a bias as well
    norm_bias: bool = True  # False: "layer" norms without one (MPT)
    qk_norm: bool = False
    qk_norm_weight: bool = True  # False: q and k are normed without a learned scale (Llama 4)
    qk_norm_wide: bool = False  # over all heads together (OLMo 2) instead of over each head
    sinks: bool = False  # one learned logit a head beside the scores (gpt-oss)
    qkv_bias: bool = False
    attention_out_bias: bool = False
    ffn_bias: bool = False
    positions: Literal["rope", "learned", "alibi"] = "rope"
    max_positions: int = 0  # rows of a learned position table; 0 when there is none
    parallel_residual: bool = False  # one unit a layer (GPT-NeoX, Falcon)
    layer_norms: int = 2  # norms of width hidden in one layer: 1 in Falcon-7B, 4 in Gemma 2 and 3
    embed_norm: bool = False  # a norm after the embedding (BLOOM)
    head_bias: bool = False  # of the output matrix (Phi-2)
    sliding_window: int | None = None  # tokens that attention looks back
    chunked: bool = False  # attention looks back to the start of its chunk of `sliding_window` tokens (Llama 4)
    global_layers: tuple[int, ...] = ()  # layers without the window, where others have it (Gemma 2 and 3, gpt-oss)
    scan_width: int = 0  # attention with a window stands for a state-space block (Mamba 2) of this inner width
    config_path: str | None = None  # the config.json it was read from: the trainer builds from it
    note: str = field(default="", compare=False)  # what of that config.json is left out, for people to read

    @property
    def query_dim(self) -> int:
        """Width of one query or key head."""
        return self.head_dim if self.latent is None else self.latent.nope_dim + self.latent.rope_dim

    @property
    def value_dim(self) -> int:
        """Width of one value head."""
        return self.head_dim if self.latent is None else self.latent.value_dim

    @property
    def dense_width(self) -> int:
        """Width of the feed-forward network of a layer without experts."""
        return (self.dense_ffn_hidden or self.ffn_hidden) if self.experts else self.ffn_hidden

    @property
    def shared_width(self) -> int:
        """Width of all shared experts of a layer together; 0 without."""
        return self.shared_ffn_hidden or self.ffn_hidden * self.shared_experts
