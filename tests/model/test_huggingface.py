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
from meshwright.model.flops import step_model_flops
from meshwright.model.huggingface import architecture_of, read_config
from meshwright.model.parameters import total_parameters

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


def test_of_a_model_of_several_parts_the_text_decoder_is_read() -> None:
    llava = architecture_of({"model_type": "llava", "text_config": LLAMA_3_8B, "vision_config": {}})
    assert llava == architecture_of(LLAMA_3_8B)
    assert "llava" in llava.note
    unnamed = {key: value for key, value in LLAMA_3_8B.items() if key != "model_type"}
    assert "deepseek_v3" in complaints({"model_type": "llava", "text_config": unnamed})["text_config.model_type"]
    assert "is missing" in complaints({"hidden_size": 64})["model_type"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}, "vision_config": {}}, "text_config"),
        ({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224}, "model_type"),
        ({"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12}, "model_type"),
        ({"model_type": "t5", "d_model": 512, "is_encoder_decoder": True}, "model_type"),
        ({"model_type": "blip-2", "is_encoder_decoder": True, "text_config": LLAMA_3_8B}, "text_config"),
        ({**LLAMA_3_8B, "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"model_type": "whisper", "text_config": "llama"}, "model_type"),
        ({"model_type": "x", "text_config": {"model_type": ["llama"]}}, "text_config"),
    ],
)
def test_encoders_vision_models_and_translators_are_refused(config: dict[str, Any], field: str) -> None:
    found = complaints(config)
    assert len(found) == 1
    assert next(iter(found)).startswith(field)
    assert "llama" in next(iter(found.values())) or "false" in next(iter(found.values()))


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
    opt = {"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
           "ffn_dim": 4096, "vocab_size": 50272, "max_position_embeddings": 2048}  # fmt: skip
    assert "do_layer_norm_before" in complaints(opt | {"do_layer_norm_before": False})
    mpt = {"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 99}
    assert architecture_of(mpt).ffn_hidden == 256
    embedder = {**LLAMA_3_8B, "model_type": "gemma3_text", "use_bidirectional_attention": True}
    assert set(complaints(embedder)) == {"use_bidirectional_attention"}
    grouped = mpt | {"no_bias": False, "attn_config": {"attn_type": "grouped_query_attention", "alibi": True}}
    assert set(complaints(grouped)) == {"no_bias", "attn_config.attn_type"}


MOE = {**LLAMA_3_8B, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
       "moe_intermediate_size": 768}  # fmt: skip


def test_layers_without_experts() -> None:
    assert architecture_of(MOE).dense_layers == ()
    mixed = architecture_of(MOE | {"mlp_only_layers": [0, 4], "decoder_sparse_step": 2})
    assert mixed.dense_layers == (0, *range(2, 32, 2))
    assert (mixed.dense_ffn_hidden, mixed.ffn_hidden) == (14336, 768)
    found = complaints(MOE | {"mlp_only_layers": [0, 32], "decoder_sparse_step": 0, "use_sliding_window": "yes",
                              "num_experts_per_tok": -1})  # fmt: skip
    assert set(found) == {"mlp_only_layers", "decoder_sparse_step", "use_sliding_window", "num_experts_per_tok"}
    assert "0 to 31" in found["mlp_only_layers"]


def test_the_kinds_of_layers_must_be_a_word_for_each() -> None:
    gemma = {**LLAMA_3_8B, "model_type": "gemma2", "num_hidden_layers": 4}
    assert architecture_of(gemma).global_layers == (1, 3)
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert architecture_of(gemma | {"layer_types": kinds}).global_layers == (0, 3)
    assert architecture_of(gemma | {"layer_types": ["full_attention"] * 4}).sliding_window is None
    for wrong in (kinds[:3], [*kinds[:3], "linear_attention"], "full_attention", [1, 2, 3, 4]):
        assert set(complaints(gemma | {"layer_types": wrong})) == {"layer_types"}


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
              | {key for family in FAMILIES.values() for key in family.reads}
              | {"attn_config", "text_config", "is_encoder_decoder", "no_bias"})  # fmt: skip
PLAUSIBLE = st.sampled_from([0, 1, 2, 3, 8, True, False, None, [], [0], [1, 7], [0, 1] * 4, ["full_attention"] * 8,
                             ["sliding_attention", "full_attention"] * 4, ["chunked_attention"] * 8])  # fmt: skip


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_null_is_as_good_as_absent_unless_it_means_none(model_type: str) -> None:
    family = FAMILIES[model_type]
    sizes = {keys[0]: 8 for keys in family.sizes.values()} | {"model_type": model_type}
    plain = architecture_of(sizes)
    keys = {key for key, _ in family.optional.values()} | set(family.reads) - set(sizes)
    none = {"sliding_window", "attention_chunk_size", "q_lora_rank", "n_shared_experts"}
    switched = {"use_sliding_window": True} if "use_sliding_window" in family.reads else {}
    for key in keys:
        assert architecture_of(sizes | switched | {key: None}).layers == 8
        if key not in none:
            assert architecture_of(sizes | {key: None}) == plain, key


@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), PLAUSIBLE | JSON, max_size=6))
def test_whatever_a_config_holds_it_is_read_or_refused(model_type: str, broken: dict[str, Any]) -> None:
    sizes = {keys[0]: 8 for keys in FAMILIES[model_type].sizes.values()}
    assert architecture_of({**sizes, "model_type": model_type}).layers == 8
    try:
        arch = architecture_of({**sizes, **broken, "model_type": model_type})
    except InputError:
        return
    assert arch.family == model_type
    assert arch.heads % arch.kv_heads == 0
    assert min(arch.layers, arch.hidden, arch.heads, arch.head_dim, arch.ffn_hidden, arch.vocab) > 0
    assert all(0 <= layer < arch.layers for layer in (*arch.dense_layers, *arch.global_layers))
    assert total_parameters(arch) > 0
    assert step_model_flops(arch, 8, 8) > 0
