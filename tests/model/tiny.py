"""Tiny configurations of every family, as `transformers` classes with their settings, and what to call their parts."""

import re
from typing import Any

# tiny configurations of every family
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 111,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 111, "n_positions": 50}
MLA = {
    **SIZES, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip

TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", GROUPED | {"head_dim": 16}),
    "llama tied, wide heads, biases": (
        "LlamaConfig",
        GROUPED | {"head_dim": 32, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "mistral": ("MistralConfig", GROUPED | {"head_dim": 16}),
    "mixtral": ("MixtralConfig", GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2Config", GROUPED),
    "qwen3": ("Qwen3Config", GROUPED | {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        GROUPED | {"head_dim": 16, "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3},
    ),
    "qwen3_moe with dense layers": (
        "Qwen3MoeConfig",
        GROUPED | {"head_dim": 16, "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3,
                   "num_hidden_layers": 5, "mlp_only_layers": [1], "decoder_sparse_step": 2},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        GROUPED | {"moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3,
                   "shared_expert_intermediate_size": 40, "mlp_only_layers": [2]},
    ),
    "llama4": (
        "Llama4TextConfig",
        GROUPED | {"head_dim": 16, "intermediate_size_mlp": 128, "num_local_experts": 4, "num_experts_per_tok": 1,
                   "num_hidden_layers": 5, "interleave_moe_layer_step": 2, "attention_chunk_size": 8,
                   "pad_token_id": 0},
    ),
    "gpt_oss": (
        "GptOssConfig",
        GROUPED | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "deepseek_v2 without a compressed query": (
        "DeepseekV2Config",
        MLA | {"q_lora_rank": None, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 2,
               "num_experts_per_tok": 2, "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1,
               "topk_group": 1},
    ),
    "deepseek_v2 with biases": (
        "DeepseekV2Config",
        MLA | {"attention_bias": True, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 2,
               "num_experts_per_tok": 2, "topk_method": "greedy", "n_group": 1, "topk_group": 1},
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        MLA | {"moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
               "first_k_dense_replace": 2, "n_group": 2, "topk_group": 1},
    ),
    "gemma": ("GemmaConfig", GROUPED | {"head_dim": 32}),
    "gemma2": ("Gemma2Config", GROUPED | {"head_dim": 32}),
    "gemma3": ("Gemma3TextConfig", GROUPED | {"head_dim": 32}),
    "gemma3 with another rhythm": (
        "Gemma3TextConfig", GROUPED | {"head_dim": 16, "num_hidden_layers": 4, "sliding_window_pattern": 2},
    ),
    "olmo2": ("Olmo2Config", GROUPED | {"eos_token_id": 2}),
    "phi": ("PhiConfig", SIZES),
    "phi with normed queries": ("PhiConfig", GROUPED | {"qk_layernorm": True}),
    "phi3": ("Phi3Config", GROUPED | {"pad_token_id": 0}),
    "granite": ("GraniteConfig", GROUPED),
    "smollm3": ("SmolLM3Config", GROUPED | {"pad_token_id": 0}),
    "starcoder2": ("Starcoder2Config", GROUPED),
    "gpt2": ("GPT2Config", GPT2),
    "gpt2 with an inner width": ("GPT2Config", GPT2 | {"n_inner": 100}),
    "gpt_bigcode": ("GPTBigCodeConfig", GPT2),
    "gpt_neox": ("GPTNeoXConfig", SIZES),
    "gpt_neox in sequence": ("GPTNeoXConfig", SIZES | {"use_parallel_residual": False}),
    "opt": (
        "OPTConfig",
        {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "ffn_dim": 96, "vocab_size": 111,
         "max_position_embeddings": 50, "word_embed_proj_dim": 64},
    ),
    "bloom": ("BloomConfig", {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 111}),
    "mpt": (
        "MptConfig", {"d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 111},
    ),
    "falcon in sequence": (
        "FalconConfig", {**SIZES, "parallel_attn": False, "multi_query": False, "bias": True, "alibi": True},
    ),
    "falcon 7B": ("FalconConfig", {**SIZES, "ffn_hidden_size": 256}),
    "falcon 40B": (
        "FalconConfig", {**SIZES, "ffn_hidden_size": 256, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
}  # fmt: skip

_LAYER = re.compile(r"(?:layers|h|blocks)\.(\d+)\.(.*)")
_EMBED = re.compile(r"embed_tokens|embed_positions|embed_in|\bwte|\bwpe|word_embeddings")
# norms by what they stand before or after, then the modules of either half
_FFN = re.compile(
    r"mlp|fc1|fc2|ffn|feed_forward|\bln_2|norm_2|post_attention_layernorm|feedforward_layernorm|^final_layer_norm"
)


def unit_of(name: str, parallel: bool, norms_after: bool) -> str:
    """The unit that the parameter `name` of a `transformers` model belongs to. `norms_after`: a norm that is called
    post_attention lies on the way out of the attention, not on the way into the feed-forward network."""
    found = _LAYER.search(name)
    if found is None:
        return "embed" if _EMBED.search(name) else "head"
    layer, rest = found.groups()
    if parallel:
        return f"layers.{layer}"
    ffn = _FFN.search(rest) and not (norms_after and rest.startswith("post_attention_layernorm"))
    return f"layers.{layer}.{'ffn' if ffn else 'attn'}"


def norms_after(family: str) -> bool:
    """Families with norms on the way out of either half."""
    return family in ("gemma2", "gemma3_text", "olmo2")
