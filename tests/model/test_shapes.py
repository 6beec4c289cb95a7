"""The tensors of each unit against real modules: parameters on meta tensors, FLOPs by counting in a forward."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meshwright.model.flops import unit_forward_flops
from meshwright.model.huggingface import read_config
from meshwright.model.parameters import total_parameters, unit_parameters
from meshwright.model.units import units_of

# tiny configurations of every family
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 111,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 111, "n_positions": 50}

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
    "gemma": ("GemmaConfig", GROUPED | {"head_dim": 32}),
    "gemma2": ("Gemma2Config", GROUPED | {"head_dim": 32}),
    "gemma3": ("Gemma3TextConfig", GROUPED | {"head_dim": 32}),
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
    "falcon 7B": ("FalconConfig", {**SIZES, "ffn_hidden_size": 256}),
    "falcon 40B": (
        "FalconConfig", {**SIZES, "ffn_hidden_size": 256, "new_decoder_architecture": True, "num_kv_heads": 2},
    ),
}  # fmt: skip

_LAYER = re.compile(r"(?:layers|h)\.(\d+)\.(.*)")
_EMBED = re.compile(r"embed_tokens|embed_positions|embed_in|\bwte|\bwpe|word_embeddings")
# norms by what they stand before or after, then the modules of either half
_FFN = re.compile(r"mlp|fc1|fc2|\bln_2|post_attention_layernorm|feedforward_layernorm|^final_layer_norm")


def unit_of(name: str, parallel: bool, four_norms: bool) -> str:
    """The unit that the parameter `name` of a `transformers` model belongs to."""
    found = _LAYER.search(name)
    if found is None:
        return "embed" if _EMBED.search(name) else "head"
    layer, rest = found.groups()
    if parallel:
        return f"layers.{layer}"
    ffn = _FFN.search(rest) and not (four_norms and rest.startswith("post_attention_layernorm"))
    return f"layers.{layer}.{'ffn' if ffn else 'attn'}"


@pytest.mark.parametrize("kind", TINY)
def test_every_unit_has_the_parameters_of_the_real_modules(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    class_name, settings = TINY[kind]
    config = getattr(transformers, class_name)(**settings)
    config.save_pretrained(tmp_path)
    arch = read_config(tmp_path)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    real: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        real[unit_of(name, arch.parallel_residual, arch.layer_norms == 4)] += parameter.numel()
    if arch.tied:  # the module has the matrix once, under the embedding's name
        real["head"] += arch.vocab * arch.hidden
    assert {unit.name: unit_parameters(arch, unit) for unit in units_of(arch)} == dict(real)
    assert total_parameters(arch) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("kind", TINY)
def test_flops_equal_a_count_of_the_matrix_products_in_a_forward(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    class_name, settings = TINY[kind]
    config = getattr(transformers, class_name)(**settings)
    config.save_pretrained(tmp_path)
    arch = read_config(tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.set_experts_implementation("eager")  # the counter does not know the grouped product of all experts
    batch, seq = 2, 24
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.randint(0, arch.vocab, (batch, seq)), use_cache=False)
    angles = sum(  # positions times frequencies: an outer product written as a matrix product
        sum(by_operation.values()) for name, by_operation in counter.get_flop_counts().items() if "rotary" in name
    )
    ours = sum(unit_forward_flops(arch, unit, batch * seq, seq, causal=False) for unit in units_of(arch))
    assert ours == counter.get_total_flops() - angles
