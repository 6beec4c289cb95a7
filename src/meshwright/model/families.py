"""The model families whose config.json we read: one row each, saying which keys mean what.

`sizes` maps a field of `Architecture` to the keys that may hold it (the first one present counts; required).
`optional` maps a field to (key, value when the key is absent or null). `fixed` are values of the family itself.
`only` lists, for a key, the values under which the shape is one that `Architecture` can state; absent is fine.
`derived` computes fields from the whole config where a key alone does not say it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """How one `model_type` spells its shape."""

    sizes: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    derived: Callable[[Config], Mapping[str, Any]] | None = None


_SIZES = {
    "layers": ("num_hidden_layers",), "hidden": ("hidden_size",), "heads": ("num_attention_heads",),
    "ffn_hidden": ("intermediate_size",), "vocab": ("vocab_size",),
}  # fmt: skip
_GPT2_SIZES = {
    "layers": ("n_layer",), "hidden": ("n_embd",), "heads": ("n_head",), "vocab": ("vocab_size",),
    "max_positions": ("n_positions",),
}  # fmt: skip
_GROUPED: dict[str, tuple[str, Any]] = {"kv_heads": ("num_key_value_heads", None), "head_dim": ("head_dim", None)}
_UNTIED: dict[str, tuple[str, Any]] = {"tied": ("tie_word_embeddings", False)}
_TIED: dict[str, tuple[str, Any]] = {"tied": ("tie_word_embeddings", True)}
_BIASED = {
    "norm": "layer", "gated": False, "qkv_bias": True, "attention_out_bias": True, "ffn_bias": True,
}  # fmt: skip
_ATTENTION_BIAS: dict[str, tuple[str, Any]] = {
    "qkv_bias": ("attention_bias", False), "attention_out_bias": ("attention_bias", False),
}  # fmt: skip
_WINDOW: dict[str, tuple[str, Any]] = {"sliding_window": ("sliding_window", None)}


def _window_if_used(config: Config) -> Mapping[str, Any]:
    return {"sliding_window": config.get("sliding_window") if config.get("use_sliding_window") else None}


def _mistral_window(config: Config) -> Mapping[str, Any]:
    return {"sliding_window": config.get("sliding_window", 4096)}  # absent means 4096, null means none


def _gpt2_ffn(config: Config) -> Mapping[str, Any]:
    inner, hidden = config.get("n_inner"), config.get("n_embd")
    return {"ffn_hidden": inner if inner is not None or not isinstance(hidden, int) else 4 * hidden}


def _bigcode(config: Config) -> Mapping[str, Any]:
    heads = 1 if config.get("multi_query", True) else config.get("n_head")
    return {**_gpt2_ffn(config), "kv_heads": heads}


def _opt_positions(config: Config) -> Mapping[str, Any]:
    rows = config.get("max_position_embeddings")  # the table has two rows more, for padding
    return {"max_positions": rows + 2 if isinstance(rows, int) else rows}


def _bloom_ffn(config: Config) -> Mapping[str, Any]:
    hidden = config.get("hidden_size", config.get("n_embed"))
    return {"ffn_hidden": 4 * hidden if isinstance(hidden, int) else hidden}


def _falcon(config: Config) -> Mapping[str, Any]:
    new, parallel = config.get("new_decoder_architecture", False), config.get("parallel_attn", True)
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    norms = (config.get("num_ln_in_parallel_attn") or 2) if new else (1 if parallel else 2)
    kv_heads = config.get("num_kv_heads", heads) if new else (1 if config.get("multi_query", True) else heads)
    ffn = config.get("ffn_hidden_size")
    return {
        "kv_heads": kv_heads, "layer_norms": norms, "parallel_residual": bool(new or parallel),
        "ffn_hidden": 4 * hidden if ffn is None and isinstance(hidden, int) else ffn,
        "positions": "alibi" if config.get("alibi", False) else "rope",
    }  # fmt: skip


_LLAMA = Family(
    _SIZES, {**_GROUPED, **_UNTIED, **_ATTENTION_BIAS, "ffn_bias": ("mlp_bias", False)}
)  # also of Granite: its multipliers change no shape
_QWEN3: dict[str, tuple[str, Any]] = {**_GROUPED, **_UNTIED, **_ATTENTION_BIAS, "head_dim": ("head_dim", 128)}
_GEMMA: dict[str, tuple[str, Any]] = {**_GROUPED, **_TIED, **_ATTENTION_BIAS, "head_dim": ("head_dim", 256)}

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(_SIZES, {**_GROUPED, **_UNTIED}, derived=_mistral_window),
    "mixtral": Family(
        {**_SIZES, "experts": ("num_local_experts",), "active_experts": ("num_experts_per_tok",)},
        {**_GROUPED, **_UNTIED, **_WINDOW},
    ),
    "qwen2": Family(_SIZES, {**_GROUPED, **_UNTIED}, {"qkv_bias": True}, derived=_window_if_used),
    "qwen3": Family(_SIZES, _QWEN3, {"qk_norm": True}, derived=_window_if_used),
    "qwen3_moe": Family(
        {
            **_SIZES, "ffn_hidden": ("moe_intermediate_size",), "experts": ("num_experts", "num_local_experts"),
            "active_experts": ("num_experts_per_tok",),
        },
        _QWEN3, {"qk_norm": True}, {"mlp_only_layers": ([], None), "decoder_sparse_step": (1, None)}, _window_if_used,
    ),
    # Gemma 2 and 3 alternate local and global attention: counted as global throughout
    "gemma": Family(_SIZES, _GEMMA),
    "gemma2": Family(_SIZES, _GEMMA, {"layer_norms": 4}),
    "gemma3_text": Family(_SIZES, _GEMMA, {"layer_norms": 4, "qk_norm": True}),
    "phi3": Family(_SIZES, {**_GROUPED, **_UNTIED, **_WINDOW}),
    "granite": _LLAMA,
    "smollm3": Family(_LLAMA.sizes, {**_LLAMA.optional, **_TIED}, derived=_window_if_used),
    "starcoder2": Family(
        _SIZES,
        {
            "kv_heads": ("num_key_value_heads", 2), **_TIED, **_WINDOW, "qkv_bias": ("use_bias", True),
            "attention_out_bias": ("use_bias", True), "ffn_bias": ("use_bias", True),
        },
        {"norm": "layer", "gated": False},
    ),
    "gpt2": Family(
        _GPT2_SIZES, _TIED, {**_BIASED, "positions": "learned"}, {"add_cross_attention": (False, None)}, _gpt2_ffn
    ),
    "gpt_bigcode": Family(
        _GPT2_SIZES, _TIED, {**_BIASED, "positions": "learned"}, {"add_cross_attention": (False, None)}, _bigcode
    ),
    "gpt_neox": Family(
        _SIZES,
        {
            **_UNTIED, "qkv_bias": ("attention_bias", True), "attention_out_bias": ("attention_bias", True),
            "parallel_residual": ("use_parallel_residual", True),
        },
        {"norm": "layer", "gated": False, "ffn_bias": True},
    ),
    "opt": Family(
        {**_SIZES, "ffn_hidden": ("ffn_dim",), "max_positions": ("max_position_embeddings",)},
        _TIED, {**_BIASED, "positions": "learned"},
        {"do_layer_norm_before": (True,), "enable_bias": (True,), "layer_norm_elementwise_affine": (True,)},
        _opt_positions,
    ),
    "bloom": Family(
        {
            "layers": ("n_layer", "num_hidden_layers"), "hidden": ("hidden_size", "n_embed"),
            "heads": ("n_head", "num_attention_heads"), "vocab": ("vocab_size",),
        },
        _TIED, {**_BIASED, "positions": "alibi", "embed_norm": True}, derived=_bloom_ffn,
    ),
    "falcon": Family(
        {
            "layers": ("num_hidden_layers", "n_layer"), "hidden": ("hidden_size",), "vocab": ("vocab_size",),
            "heads": ("num_attention_heads", "n_head"),
        },
        {
            **_TIED, "qkv_bias": ("bias", False), "attention_out_bias": ("bias", False), "ffn_bias": ("bias", False),
        },
        {"norm": "layer", "gated": False}, derived=_falcon,
    ),
}  # fmt: skip
