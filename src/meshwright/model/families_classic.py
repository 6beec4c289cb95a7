"""Families with layer norms and two feed-forward matrices: GPT-2 and what came after it."""

from collections.abc import Mapping
from typing import Any

from meshwright.model.family import BIASED, SIZES, TIED, UNTIED, WINDOW, Config, Family, given

_GPT2_SIZES = {
    "layers": ("n_layer",), "hidden": ("n_embd",), "heads": ("n_head",), "vocab": ("vocab_size",),
    "max_positions": ("n_positions",),
}  # fmt: skip


def _gpt2_ffn(config: Config) -> Mapping[str, Any]:
    inner = config.get("n_inner")
    return {"ffn_hidden": 4 * config["n_embd"] if inner is None else inner}


def _bigcode(config: Config) -> Mapping[str, Any]:
    return {**_gpt2_ffn(config), "kv_heads": 1 if given(config, "multi_query", True) else config["n_head"]}


def _opt_positions(config: Config) -> Mapping[str, Any]:
    return {"max_positions": config["max_position_embeddings"] + 2}  # the table has two rows more, for padding


def _bloom_ffn(config: Config) -> Mapping[str, Any]:
    return {"ffn_hidden": 4 * (config.get("hidden_size") or config["n_embed"])}


def _mpt_ffn(config: Config) -> Mapping[str, Any]:
    return {"ffn_hidden": 4 * config["d_model"]}


def _falcon(config: Config) -> Mapping[str, Any]:
    new, parallel = given(config, "new_decoder_architecture", False), given(config, "parallel_attn", True)
    heads = config.get("num_attention_heads") or config["n_head"]
    norms = (config.get("num_ln_in_parallel_attn") or 2) if new else (1 if parallel else 2)
    kv_heads = config.get("num_kv_heads") if new else (1 if given(config, "multi_query", True) else heads)
    return {
        "kv_heads": kv_heads, "layer_norms": norms, "parallel_residual": bool(new or parallel),
        "ffn_hidden": config.get("ffn_hidden_size") or 4 * config["hidden_size"],
        "positions": "alibi" if config.get("alibi") else "rope",
    }  # fmt: skip


_MULTI_HEAD = {
    "attn_config.attn_type": ("multihead_attention", None), "attn_config.alibi": (True, None),
    "attn_config.qk_ln": (False, None), "no_bias": (True, None), "expansion_ratio": (4, None),
}  # fmt: skip

CLASSIC: Mapping[str, Family] = {
    "gpt2": Family(
        _GPT2_SIZES, TIED, {**BIASED, "positions": "learned"}, {"add_cross_attention": (False, None)},
        reads={"n_inner": "step"}, derived=_gpt2_ffn,
    ),
    "gpt_bigcode": Family(
        _GPT2_SIZES, TIED, {**BIASED, "positions": "learned"}, {"add_cross_attention": (False, None)},
        reads={"n_inner": "step", "multi_query": "switch"}, derived=_bigcode,
    ),
    "gpt_neox": Family(
        SIZES,
        {
            **UNTIED, "qkv_bias": ("attention_bias", True), "attention_out_bias": ("attention_bias", True),
            "parallel_residual": ("use_parallel_residual", True),
        },
        {"norm": "layer", "gated": False, "ffn_bias": True},
    ),
    "starcoder2": Family(
        SIZES,
        {
            "kv_heads": ("num_key_value_heads", 2), **TIED, **WINDOW, "qkv_bias": ("use_bias", True),
            "attention_out_bias": ("use_bias", True), "ffn_bias": ("use_bias", True),
        },
        {"norm": "layer", "gated": False},
    ),
    "opt": Family(
        {**SIZES, "ffn_hidden": ("ffn_dim",), "max_positions": ("max_position_embeddings",)},
        TIED, {**BIASED, "positions": "learned"},
        {"do_layer_norm_before": (True,), "enable_bias": (True,), "layer_norm_elementwise_affine": (True,)},
        derived=_opt_positions,
    ),
    "bloom": Family(
        {
            "layers": ("n_layer", "num_hidden_layers"), "hidden": ("hidden_size", "n_embed"),
            "heads": ("n_head", "num_attention_heads"), "vocab": ("vocab_size",),
        },
        TIED, {**BIASED, "positions": "alibi", "embed_norm": True}, derived=_bloom_ffn,
    ),
    "mpt": Family(
        {"layers": ("n_layers",), "hidden": ("d_model",), "heads": ("n_heads",), "vocab": ("vocab_size",)},
        TIED, {"norm": "layer", "norm_bias": False, "gated": False, "positions": "alibi"}, _MULTI_HEAD,
        derived=_mpt_ffn,
    ),
    "falcon": Family(
        {
            "layers": ("num_hidden_layers", "n_layer"), "hidden": ("hidden_size",), "vocab": ("vocab_size",),
            "heads": ("num_attention_heads", "n_head"),
        },
        {**TIED, "qkv_bias": ("bias", False), "attention_out_bias": ("bias", False), "ffn_bias": ("bias", False)},
        {"norm": "layer", "gated": False},
        reads={
            "new_decoder_architecture": "switch", "parallel_attn": "switch", "multi_query": "switch",
            "alibi": "switch", "num_ln_in_parallel_attn": "step", "num_kv_heads": "step", "ffn_hidden_size": "step",
        },
        derived=_falcon,
    ),
}  # fmt: skip
