"""Families with mixtures of experts: Mixtral, Qwen MoE, Llama 4, gpt-oss, DeepSeek V2 and V3."""

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.model.architecture import LatentAttention
from meshwright.model.family import (
    ATTENTION_BIAS,
    GROUPED,
    SIZES,
    SWITCHED_WINDOW,
    UNTIED,
    WINDOW,
    Config,
    Family,
    Reads,
    alternating,
    given,
    layers_in,
    types_or,
    windows,
)

_ROUTED = {"experts": ("num_local_experts", "num_experts"), "active_experts": ("num_experts_per_tok",)}
_QWEN_SIZES = {
    **SIZES, **_ROUTED, "ffn_hidden": ("moe_intermediate_size",), "dense_ffn_hidden": ("intermediate_size",),
}  # fmt: skip
_QWEN_READS: dict[str, Reads] = {**SWITCHED_WINDOW, "mlp_only_layers": "layers", "decoder_sparse_step": "step"}


def _dense_where(config: Config, dense: Callable[[int], bool]) -> dict[str, Any]:
    """The layers without experts; a width of theirs says nothing where there is none."""
    layers = tuple(layer for layer in range(layers_in(config)) if dense(layer))
    return {"dense_layers": layers} if layers else {"dense_layers": (), "dense_ffn_hidden": 0}


def _qwen_dense(config: Config) -> dict[str, Any]:
    named, step = config.get("mlp_only_layers") or (), config.get("decoder_sparse_step") or 1
    return _dense_where(config, lambda layer: layer in named or (layer + 1) % step != 0)


def _qwen3(config: Config) -> Mapping[str, Any]:
    used = config.get("sliding_window", 4096) if config.get("use_sliding_window") else None
    return {**_qwen_dense(config), "sliding_window": used}


def _qwen2(config: Config) -> Mapping[str, Any]:
    """A window, where switched on, lies on each second of the first `max_window_layers` layers."""
    used = config.get("sliding_window", 4096) if config.get("use_sliding_window") else None
    last = given(config, "max_window_layers", 28)
    local = types_or(config, lambda layer: layer % 2 == 0 and layer < last)
    return {**_qwen_dense(config), **windows(used, local)}


def _llama4(config: Config) -> Mapping[str, Any]:
    step, routed = config.get("interleave_moe_layer_step") or 1, config.get("moe_layers")
    every = config.get("no_rope_layer_interval") or 4
    rotated = config.get("no_rope_layers") or [(layer + 1) % every for layer in range(layers_in(config))]
    chunk = windows(config.get("attention_chunk_size", 8192), types_or(config, lambda layer: bool(rotated[layer])))
    dense = _dense_where(config, lambda layer: layer not in routed if routed is not None else (layer + 1) % step != 0)
    return {**dense, **chunk, "chunked": chunk["sliding_window"] is not None}


def _deepseek(config: Config) -> Mapping[str, Any]:
    """What a file leaves out is what its class has by default; null ranks and shared experts mean none."""
    third = config["model_type"] == "deepseek_v3"
    first, step = given(config, "first_k_dense_replace", 3 if third else 0), given(config, "moe_layer_freq", 1)
    dense = _dense_where(config, lambda layer: layer < first or layer % step != 0)
    latent = LatentAttention(
        config["kv_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"],
        config.get("q_lora_rank", 1536),
    )  # fmt: skip
    ahead = config.get("num_nextn_predict_layers") or 0
    left_out = f"multi-token prediction ({ahead} more layer{'s' * (ahead > 1)}) is left out"
    return {
        **dense, "latent": latent, "head_dim": latent.nope_dim + latent.rope_dim,
        "kv_heads": config["num_attention_heads"], "note": left_out if ahead else "",
        "shared_experts": config.get("n_shared_experts", 1 if third else 2) or 0,
    }  # fmt: skip


_DEEPSEEK = Family(
    {
        **SIZES, "ffn_hidden": ("moe_intermediate_size",), "dense_ffn_hidden": ("intermediate_size",),
        "experts": ("n_routed_experts",), "active_experts": ("num_experts_per_tok",),
        "latent.kv_rank": ("kv_lora_rank",), "latent.nope_dim": ("qk_nope_head_dim",),
        "latent.rope_dim": ("qk_rope_head_dim",), "latent.value_dim": ("v_head_dim",),
    },
    {**UNTIED, **ATTENTION_BIAS, "ffn_bias": ("mlp_bias", False)},
    reads={
        "q_lora_rank": "step", "n_shared_experts": "count", "first_k_dense_replace": "count", "moe_layer_freq": "step",
        "num_nextn_predict_layers": "count",
    },
    derived=_deepseek,
)  # fmt: skip

EXPERTS: Mapping[str, Family] = {
    "mixtral": Family({**SIZES, **_ROUTED}, {**GROUPED, **UNTIED, **WINDOW}),
    "qwen2_moe": Family(
        {**_QWEN_SIZES, "shared_ffn_hidden": ("shared_expert_intermediate_size",)},
        {**GROUPED, **UNTIED, "qkv_bias": ("qkv_bias", True)}, {"shared_experts": 1, "shared_gate": True},
        reads={**_QWEN_READS, "shared_expert_intermediate_size": "step"}, derived=_qwen2,
    ),
    "qwen3_moe": Family(
        _QWEN_SIZES, {**GROUPED, **UNTIED, **ATTENTION_BIAS, "head_dim": ("head_dim", 128)}, {"qk_norm": True},
        reads=_QWEN_READS, derived=_qwen3,
    ),
    "llama4_text": Family(
        {**SIZES, **_ROUTED, "dense_ffn_hidden": ("intermediate_size_mlp",)},
        {
            **GROUPED, **UNTIED, **ATTENTION_BIAS, "head_dim": ("head_dim", 128), "qk_norm": ("use_qk_norm", True),
            "kv_heads": ("num_key_value_heads", 8),
        },
        {"shared_experts": 1, "qk_norm_weight": False},
        reads={
            "interleave_moe_layer_step": "step", "moe_layers": "layers", "no_rope_layers": "flags",
            "no_rope_layer_interval": "step", "attention_chunk_size": "step", "layer_types": "types",
        },
        derived=_llama4,
    ),
    "gpt_oss": Family(
        {**SIZES, **_ROUTED},
        {
            **GROUPED, **UNTIED, "head_dim": ("head_dim", 64), "kv_heads": ("num_key_value_heads", 8),
            "qkv_bias": ("attention_bias", True), "attention_out_bias": ("attention_bias", True),
        },
        {"sinks": True, "router_bias": True, "ffn_bias": True},
        reads={"sliding_window": "count", "layer_types": "types"}, derived=alternating(128, 2),
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}  # fmt: skip
