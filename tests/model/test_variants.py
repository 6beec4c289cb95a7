"""Variants: what makes two units of one kind cost differently."""

from dataclasses import replace

import pytest

from meshwright.model.activations import unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.catalogue import model_names, named
from meshwright.model.flops import step_model_flops, unit_forward_flops
from meshwright.model.shapes import tensors_of
from meshwright.model.training import Training
from meshwright.model.units import units_of
from meshwright.model.variants import Variant, alike, variants_of

PLAIN = Architecture("plain", "plain", 6, 64, 8, 8, 8, 128, 512)


def test_a_plain_model_has_one_variant_of_each_kind() -> None:
    assert len(set(variants_of(PLAIN))) == 4
    assert alike(PLAIN) == (0, *(1, 2) * 6, 13)


def test_windows_tell_attention_apart_and_experts_feed_forward() -> None:
    mixed = replace(PLAIN, experts=4, active_experts=2, dense_layers=(0,), sliding_window=16, global_layers=(2, 5))
    found = variants_of(mixed)
    attn, ffn = found[1:-1:2], found[2:-1:2]
    assert [variant.window for variant in attn] == [16, 16, None, 16, 16, None]
    assert [variant.experts for variant in ffn] == [False, *[True] * 5]
    assert not any(variant.experts for variant in attn)
    assert all(variant.window is None for variant in ffn)
    parallel = replace(mixed, parallel_residual=True)
    assert variants_of(parallel)[1:3] == (Variant("layer", False, 16), Variant("layer", True, 16))


@pytest.mark.parametrize("name", model_names())
def test_units_of_one_variant_are_alike_in_all_that_is_counted(name: str) -> None:
    arch = named(name)
    units = units_of(arch)
    for unit, first in list(zip(units, alike(arch), strict=True))[:: max(1, len(units) // 12)]:
        assert tensors_of(arch, unit) == tensors_of(arch, units[first])
        assert unit_forward_flops(arch, unit, 64, 4096) == unit_forward_flops(arch, units[first], 64, 4096)
        one, other = (unit_activation_bytes(arch, each, Training(), 1, 4096) for each in (unit, units[first]))
        assert one == other
    whole = sum(unit_forward_flops(arch, unit, 64, 4096) for unit in units)
    assert step_model_flops(arch, 64, 4096) == pytest.approx(3 * whole, rel=1e-12)
