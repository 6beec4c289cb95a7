"""Families of dense decoders with rotary positions: Llama and its relatives, Gemma, Phi 3, OLMo 2."""

from collections.abc import Mapping
from typing import Any

from meshwright.model.family import (
    ATTENTION_BIAS,
    BIASED,
    GROUPED,
    SIZES,
    SWITCHED_WINDOW,
    TIED,
    UNTIED,
    WINDOW,
    Config,
    Family,
    Reads,
    alternating,
    given,
    switched_window,
    types_or,
    windows,
)


def _mistral_window(config: Config) -> Mapping[str, Any]:
    return {"sliding_window": config.get("sliding_window", 4096)}  # absent means 4096, null means none


def _smollm_window(config: Config) -> Mapping[str, Any]:
    if not config.get("use_sliding_window"):
        return {"sliding_window": None}
    every = given(config, "no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers") or [(layer + 1) % every for layer in range(config["num_hidden_layers"])]
    return windows(config.get("sliding_window"), types_or(config, lambda layer: not rotated[layer]))


_LLAMA = Family(
    SIZES, {**GROUPED, **UNTIED, **ATTENTION_BIAS, "ffn_bias": ("mlp_bias", False)}
)  # also of Granite: its multipliers change no shape
_QWEN3: dict[str, tuple[str, Any]] = {**GROUPED, **UNTIED, **ATTENTION_BIAS, "head_dim": ("head_dim", 128)}
_GEMMA: dict[str, tuple[str, Any]] = {**GROUPED, **TIED, **ATTENTION_BIAS, "head_dim": ("head_dim", 256)}
_CAUSAL = {"use_bidirectional_attention": (False, None)}  # those that look both ways embed texts
_LOCAL: dict[str, Reads] = {"sliding_window": "count", "layer_types": "types"}

DENSE: Mapping[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "mistral": Family(SIZES, {**GROUPED, **UNTIED}, reads={"sliding_window": "count"}, derived=_mistral_window),
    "qwen2": Family(
        SIZES, {**GROUPED, **UNTIED}, {"qkv_bias": True}, reads=SWITCHED_WINDOW, derived=switched_window
    ),
    "qwen3": Family(SIZES, _QWEN3, {"qk_norm": True}, reads=SWITCHED_WINDOW, derived=switched_window),
    "smollm3": Family(
        SIZES, {**_LLAMA.optional, **TIED}, derived=_smollm_window,
        reads={**SWITCHED_WINDOW, "no_rope_layers": "flags", "no_rope_layer_interval": "step"},
    ),
    "gemma": Family(SIZES, _GEMMA),
    "gemma2": Family(SIZES, _GEMMA, {"layer_norms": 4}, _CAUSAL, reads=_LOCAL, derived=alternating(4096, 2)),
    "gemma3_text": Family(
        SIZES, {**_GEMMA, "kv_heads": ("num_key_value_heads", 4)}, {"layer_norms": 4, "qk_norm": True},
        _CAUSAL,
        # the published files of the larger ones leave these out, and mean:
        defaults={"heads": 8, "vocab": 262_208},
        reads={**_LOCAL, "sliding_window_pattern": "step"}, derived=alternating(4096, 6, "sliding_window_pattern"),
    ),
    "phi3": Family(SIZES, {**GROUPED, **UNTIED, **WINDOW}),
    "olmo2": Family(SIZES, {**GROUPED, **UNTIED, **ATTENTION_BIAS}, {"qk_norm": True, "qk_norm_wide": True}),
    "phi": Family(
        SIZES, {**GROUPED, **UNTIED, "qk_norm": ("qk_layernorm", False)},
        {**BIASED, "parallel_residual": True, "layer_norms": 1, "head_bias": True},
    ),
}  # fmt: skip
