"""The tensors of each unit against real modules: parameters on meta tensors, FLOPs by counting in a forward."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.model.flops import unit_forward_flops
from meshwright.model.huggingface import read_config
from meshwright.model.parameters import total_parameters, unit_parameters
from meshwright.model.units import units_of

from .tiny import TINY, norms_after, unit_of


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
        real[unit_of(name, arch.parallel_residual, norms_after(arch.family))] += parameter.numel()
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
    if arch.family == "llama4_text":  # its module hands every token to every expert and weighs most results by zero
        arch = replace(arch, active_experts=arch.experts)
    ours: Counter[int | None] = Counter()
    for unit in units_of(arch):
        ours[unit.layer] += round(unit_forward_flops(arch, unit, batch * seq, seq, causal=False))
    for name, by_operation in counter.get_flop_counts().items():
        if layer := re.search(r"\.(?:layers|h|blocks)\.(\d+)$", name):
            assert ours[int(layer[1])] == sum(by_operation.values()), name
    assert len([layer for layer in ours if layer is not None]) == arch.layers
    assert ours.total() == counter.get_total_flops() - angles
