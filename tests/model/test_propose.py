"""Shapes proposed for a parameter count."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import parse_count
from meshwright.model.flops import matmul_flops_per_token
from meshwright.model.parameters import total_parameters
from meshwright.model.propose import from_count
from meshwright.model.units import units_of


def test_the_worked_example_has_matrices_of_tens_of_megabytes() -> None:
    arch = from_count(parse_count("1.2B"))
    assert arch.name == "llama-like 1.2B"
    assert total_parameters(arch) == pytest.approx(1.2e9, rel=0.02)
    assert 15e6 < arch.hidden * arch.ffn_hidden * 2 < 50e6  # bytes in fp16: no reason to split
    assert arch.layers % 4 == 0
    assert arch.head_dim in (64, 128)
    attn, ffn = units_of(arch)[1:3]
    work = matmul_flops_per_token(arch, ffn) / matmul_flops_per_token(arch, attn)
    assert work == pytest.approx(2, abs=0.3)


@pytest.mark.parametrize(
    ("written", "layers", "hidden"), [("124M", (10, 16), 768), ("6.7B", (32, 32), 4096), ("13B", (40, 40), 5120)]
)
def test_known_sizes_look_as_published(written: str, layers: tuple[int, int], hidden: int) -> None:
    arch = from_count(parse_count(written), "mine")
    assert arch.name == "mine"
    assert layers[0] <= arch.layers <= layers[1]
    assert arch.hidden == hidden


@settings(max_examples=40, deadline=None)
@given(st.floats(5.5, 12).map(lambda exponent: int(10**exponent)))
def test_any_count_is_met_within_two_percent(count: int) -> None:
    arch = from_count(count)
    assert abs(total_parameters(arch) / count - 1) <= 0.02
    assert arch.hidden == arch.heads * arch.head_dim
    assert arch.heads % arch.kv_heads == 0
    if count >= 20_000_000:
        assert arch.vocab == 32_000
        assert arch.hidden % 128 == arch.ffn_hidden % 128 == 0


@pytest.mark.parametrize("count", [-1, 0, 1000, 10**18])
def test_impossible_counts_are_refused(count: int) -> None:
    with pytest.raises(InputError, match="no sensible decoder"):
        from_count(count)


@pytest.mark.parametrize("written", ["0.1B", "0.35B", "1B", "3B", "8B", "30B", "70B", "175B", "405B", "671B", "1T"])
def test_shapes_look_like_published_ones_and_divide_well(written: str) -> None:
    """Published dense decoders are 40 to 170 times as wide as deep, with networks 2 to 4 times as wide as that."""
    arch = from_count(parse_count(written))
    assert arch.name.startswith("llama-like")
    assert 40 < arch.hidden / arch.layers < 170
    assert 2 < arch.ffn_hidden / arch.hidden < 4
    assert arch.layers % 2 == 0
    if total_parameters(arch) > 2e9:
        assert arch.layers % 4 == arch.heads % 8 == arch.kv_heads % 8 == arch.ffn_hidden % 64 == 0
