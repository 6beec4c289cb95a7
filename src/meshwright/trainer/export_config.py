"""The config.json of a folder that transformers loads. Imports no torch."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import architecture_of, text_part
from meshwright.trainer.models.families import numerics

_TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def config_content(arch: Architecture) -> dict[str, Any]:
    """What config.json says of the trained model, whose weights are fp32: the one it was built from, its text decoder
    where that has several parts, or one of a family that has such a shape.

    Raises InputError when no family that transformers knows has it.
    """
    content = _given(arch) if arch.config_path is not None else _written(arch)
    content.pop("torch_dtype", None)
    return {**content, "dtype": "float32"}


def copy_tokenizer(source: Path, target: Path) -> None:
    """Take along what the folder of the model's config.json says about text and generation."""
    for name in _TOKENIZER:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def is_a_part(arch: Architecture) -> bool:
    """Is the model the text decoder of a model of several parts?"""
    return arch.config_path is not None and bool(_text_part(arch)[1])


def config_folder(arch: Architecture) -> Path | None:
    """The folder of the model's config.json; None without one."""
    if arch.config_path is None:
        return None
    path = Path(arch.config_path)
    return path if path.is_dir() else path.parent


def _given(arch: Architecture) -> dict[str, Any]:
    part, left_out = _text_part(arch)
    content = dict(part)
    if left_out:  # named for the model of several parts
        content.pop("architectures", None)
    return content


def _text_part(arch: Architecture) -> tuple[Mapping[str, Any], str]:
    path = Path(arch.config_path or "")
    whole = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8-sig"))
    return text_part(whole, str(path))


def _written(arch: Architecture) -> dict[str, Any]:
    """The family whose config.json describes the very same shape."""
    rules = numerics(arch)
    sizes: Mapping[str, Any] = {
        "num_hidden_layers": arch.layers, "hidden_size": arch.hidden, "num_attention_heads": arch.heads,
        "num_key_value_heads": arch.kv_heads, "head_dim": arch.head_dim, "intermediate_size": arch.ffn_hidden,
        "vocab_size": arch.vocab, "tie_word_embeddings": arch.tied, "rope_theta": rules.rope_theta,
        "rms_norm_eps": rules.norm_eps, "hidden_act": "silu", "initializer_range": rules.initializer_range,
        "attention_bias": arch.qkv_bias, "mlp_bias": arch.ffn_bias, "sliding_window": arch.sliding_window,
    }  # fmt: skip
    for family in dict.fromkeys((arch.family, "llama", "mistral", "qwen2", "qwen3")):
        content = {"model_type": family, **sizes}
        if family != "plain" and _shape(architecture_of(content)) == _shape(arch):
            return content
    raise bad_input(
        "no family that transformers knows has a model of this shape, so no folder can be written for it",
        field="model", value=arch.name, legal="qkv_bias, attention_out_bias, ffn_bias and qk_norm as in one of "
        "llama, mistral, qwen2, qwen3",
    )  # fmt: skip


def _shape(arch: Architecture) -> tuple[Any, ...]:
    return (
        arch.layers, arch.hidden, arch.heads, arch.kv_heads, arch.head_dim, arch.ffn_hidden, arch.vocab, arch.tied,
        arch.qk_norm, arch.qkv_bias, arch.attention_out_bias, arch.ffn_bias, arch.norm, arch.sliding_window,
        arch.global_layers,
    )  # fmt: skip
