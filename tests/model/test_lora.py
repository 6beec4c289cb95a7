"""Adapters: published counts, and an independent sum over the linear modules of real models."""

from dataclasses import replace
from typing import Any

import pytest

from meshwright.model.catalogue import named
from meshwright.model.huggingface import architecture_of
from meshwright.model.lora import adapter_parameters, total_adapter_parameters, trainable_share
from meshwright.model.parameters import total_parameters
from meshwright.model.training import Training
from meshwright.model.units import Unit, units_of

from .tiny import TINY

LORA = Training(task="lora", lora_rank=16)
ATTN, FFN = Unit("layers.0.attn", "attn", 0), Unit("layers.0.ffn", "ffn", 0)


@pytest.mark.parametrize(
    ("name", "rank", "targets", "count"),
    [
        # all linear layers of a 7B Llama: 32 · 16 · (4 · 2 · 4096 + 3 · (4096 + 11008)); printed as 39,976,960
        ("llama-2-7b", 16, "all", 39_976_960),
        ("llama-2-7b", 8, "attention", 32 * 8 * 4 * 2 * 4096),
        # all linear layers of Llama 3 8B: printed as 41,943,040 by fine-tuning programs at rank 16
        ("llama-3-8b", 16, "all", 41_943_040),
        ("llama-3-8b", 16, "attention", 32 * 16 * (2 * 2 * 4096 + 2 * (4096 + 1024))),
    ],
)
def test_published_counts(name: str, rank: int, targets: Any, count: int) -> None:
    assert total_adapter_parameters(named(name), replace(LORA, lora_rank=rank, lora_targets=targets)) == count


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2", "opt", "olmo2", "deepseek_v3", "phi"])
def test_every_linear_module_inside_the_layers_gets_one(kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    class_name, settings = TINY[kind]
    if kind == "deepseek_v3":  # its experts lie in one tensor, not in linear modules
        settings = settings | {"first_k_dense_replace": 3}
    config = getattr(transformers, class_name)(**settings)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    linear = [
        (module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "layers." in name
    ]
    assert total_adapter_parameters(architecture_of(config.to_dict()), LORA) == 16 * sum(map(sum, linear))


def test_a_tensor_group_cuts_one_factor_of_each() -> None:
    arch = named("llama-3-8b")
    assert adapter_parameters(arch, ATTN, LORA, tp=8) == 16 * (
        (4096 + 512) + 2 * (4096 + 128) + (512 + 4096)  # q, k and v, o
    )
    assert adapter_parameters(arch, FFN, LORA, tp=8) == 16 * 3 * (4096 + 14336 // 8)
    assert adapter_parameters(arch, units_of(arch)[0], LORA) == 0
    assert adapter_parameters(arch, units_of(arch)[-1], LORA) == 0


def test_each_expert_has_its_own() -> None:
    arch = named("qwen1.5-moe-a2.7b")
    one, shared = 3 * (2048 + 1408), 3 * (2048 + 5632)
    assert adapter_parameters(arch, FFN, LORA) == 16 * (60 * one + shared)
    assert adapter_parameters(arch, FFN, LORA, tp=2, ep=4, etp=1) == 16 * (15 * one + 3 * (2048 + 2816))
    assert adapter_parameters(arch, FFN, replace(LORA, lora_targets="attention")) == 0


def test_what_trains() -> None:
    arch = named("deepseek-v2-lite")
    assert trainable_share(arch, Training()) == 1
    assert trainable_share(arch, LORA) == total_adapter_parameters(arch, LORA) / total_parameters(arch)
    assert 0 < total_adapter_parameters(arch, LORA) < total_parameters(arch) / 50
