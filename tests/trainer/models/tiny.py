"""Tiny models of every family, as transformers makes them: weights that hide nothing, and their folders."""

from pathlib import Path
from typing import Any

import pytest

from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import read_config

_SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
_GEMMA = {**_SIZES, "query_pre_attn_scalar": 8, "sliding_window": 8, "pad_token_id": 0}
_GPT2 = {"n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 99, "n_positions": 64,
         "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}  # fmt: skip
_NEOX = {key: value for key, value in _SIZES.items() if key not in ("num_key_value_heads", "head_dim")}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _SIZES),
    "llama tied": ("llama", {**_SIZES, "tie_word_embeddings": True, "pad_token_id": 3}),
    "llama yarn": ("llama", {**_SIZES, "rope_parameters": _YARN}),
    "llama gelu": ("llama", {**_SIZES, "hidden_act": "gelu", "pad_token_id": 3}),
    "mistral": ("mistral", {**_SIZES, "sliding_window": None}),
    "mistral window": ("mistral", {**_SIZES, "sliding_window": 8}),
    "qwen2": ("qwen2", _SIZES),
    "qwen2 window": ("qwen2", {**_SIZES, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "qwen3": ("qwen3", _SIZES),
    "gemma2": ("gemma2", _GEMMA),
    "gemma3": ("gemma3_text", {**_GEMMA, "sliding_window_pattern": 2}),
    "phi3": ("phi3", {**_SIZES, "pad_token_id": 0, "partial_rotary_factor": 0.5, "sliding_window": 8}),
    "gpt2": ("gpt2", _GPT2),
    "gpt_neox": ("gpt_neox", _NEOX),
    "gpt_neox in turn": ("gpt_neox", {**_NEOX, "use_parallel_residual": False}),
    "olmo2": ("olmo2", {**_SIZES, "pad_token_id": 1}),
    "mixtral": ("mixtral", {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
}  # fmt: skip


def reference(name: str) -> Any:
    """A model of transformers with random weights, fp32, none of them 0 or 1: those hide mistakes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    kind, values = CONFIGS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **values)).float()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.ndim == 1 else 0.0, 0.1)
    return model.eval()


def folder(name: str, path: Path) -> Architecture:
    """Leaves the family's folder, with weights, at `path`; its shape."""
    reference(name).save_pretrained(path)
    return read_config(path)


def config_folder(name: str, path: Path) -> Architecture:
    """Leaves the family's config.json alone at `path`; its shape."""
    transformers = pytest.importorskip("transformers")
    kind, values = CONFIGS[name]
    transformers.AutoConfig.for_model(kind, **values).save_pretrained(path)
    return read_config(path)
