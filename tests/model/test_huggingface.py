"""config.json files of known, unknown and broken kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.model.architecture import Architecture
from meshwright.model.families import FAMILIES
from meshwright.model.huggingface import architecture_of, read_config

LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": False,
    "rope_theta": 500000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


def complaints(config: Any) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        architecture_of(config, file="config.json")
    return {complaint.field: f"{complaint.rule} ({complaint.legal})" for complaint in caught.value.complaints}


def test_a_folder_or_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_3_8B))
    read = read_config(folder)
    assert read == read_config(str(folder / "config.json"))
    assert read == Architecture(
        "my-llama", "llama", 32, 4096, 32, 8, 128, 14336, 128256, config_path=str(folder / "config.json")
    )


def test_multiples_written_by_other_programs() -> None:
    assert architecture_of(LLAMA_3_8B | {"hidden_size": 4096.0, "head_dim": None}).hidden == 4096


@pytest.mark.parametrize("model_type", ["bert", "t5", "vit", "whisper", "mamba2", "lama"])
def test_other_families_are_refused_and_the_known_ones_named(model_type: str) -> None:
    text = complaints({**LLAMA_3_8B, "model_type": model_type})["model_type"]
    assert all(known in text for known in FAMILIES)
    if model_type == "lama":
        assert "did you mean 'llama'?" in text


def test_models_of_several_parts_are_refused() -> None:
    text = complaints({"model_type": "llava", "text_config": LLAMA_3_8B, "vision_config": {}})["model_type"]
    assert "text_config" in text
    assert "is missing" in complaints({"hidden_size": 64})["model_type"]


def test_all_missing_keys_are_named_at_once() -> None:
    found = complaints({"model_type": "llama", "hidden_size": 64})
    assert set(found) == {"num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}


def test_all_impossible_values_are_named_at_once() -> None:
    nonsense = {
        "num_hidden_layers": -3, "vocab_size": 10**18, "intermediate_size": float("nan"), "num_attention_heads": True,
        "num_key_value_heads": "8", "tie_word_embeddings": "no",
    }  # fmt: skip
    assert set(complaints(LLAMA_3_8B | nonsense)) == set(nonsense)


def test_sizes_that_do_not_go_together() -> None:
    found = complaints(LLAMA_3_8B | {"num_attention_heads": 30, "num_key_value_heads": 8})
    assert "4096 is not divisible" in found["num_attention_heads"]
    assert "must divide num_attention_heads 30" in found["num_key_value_heads"]
    assert "nearest: 5, 6, 10" in found["num_key_value_heads"]
    wide = architecture_of(LLAMA_3_8B | {"num_attention_heads": 30, "num_key_value_heads": 10, "head_dim": 128})
    assert (wide.heads, wide.head_dim) == (30, 128)
    mixtral = {**LLAMA_3_8B, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5}
    assert "4 experts" in complaints(mixtral)["num_experts_per_tok"]


def test_variants_that_the_shape_cannot_state_are_refused() -> None:
    moe = {**LLAMA_3_8B, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
           "moe_intermediate_size": 768}  # fmt: skip
    assert architecture_of(moe).experts == 8
    assert "mlp_only_layers" in complaints(moe | {"mlp_only_layers": [0, 1]})
    assert "do_layer_norm_before" in complaints(
        {"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "ffn_dim": 4096, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": False}
    )  # fmt: skip


def test_windows_only_where_they_are_in_use() -> None:
    qwen = {**LLAMA_3_8B, "model_type": "qwen2", "sliding_window": 32768, "use_sliding_window": False}
    assert architecture_of(qwen).sliding_window is None
    assert architecture_of(qwen | {"use_sliding_window": True}).sliding_window == 32768
    mistral = {**LLAMA_3_8B, "model_type": "mistral"}
    assert architecture_of(mistral).sliding_window == 4096
    assert architecture_of(mistral | {"sliding_window": None}).sliding_window is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"model_type": 7}', "[" * 100_000, "\x00"])
def test_what_is_not_a_config_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json"):
        read_config(tmp_path)


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_config(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({key for family in FAMILIES.values() for keys in family.sizes.values() for key in keys}
              | {key for family in FAMILIES.values() for key, _ in family.optional.values()}
              | {"multi_query", "n_inner", "use_sliding_window", "sliding_window", "num_ln_in_parallel_attn",
                 "new_decoder_architecture", "num_kv_heads"})  # fmt: skip


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_whatever_a_config_holds_it_is_read_or_refused(model_type: str, broken: dict[str, Any]) -> None:
    sizes = {key: 8 for key in KEYS if key not in ("use_sliding_window", "n_inner", "num_ln_in_parallel_attn")}
    switches = {key: True for key in KEYS if key.startswith(("use_", "tie_")) or key.endswith(("bias", "_query"))}
    try:
        arch = architecture_of({**sizes, **switches, "new_decoder_architecture": False, **broken,
                                "model_type": model_type})  # fmt: skip
    except InputError:
        return
    assert arch.family == model_type
    assert arch.heads % arch.kv_heads == 0
    assert min(arch.layers, arch.hidden, arch.heads, arch.head_dim, arch.ffn_hidden, arch.vocab) > 0
