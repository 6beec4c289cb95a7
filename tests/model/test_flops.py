"""Model FLOPs: conventions and published ratios. The count against real modules is in test_shapes.py."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.model.architecture import Architecture
from meshwright.model.flops import (
    attention_flops_per_token,
    keys_per_query,
    matmul_flops_per_token,
    step_model_flops,
    unit_forward_flops,
)
from meshwright.model.parameters import total_parameters
from meshwright.model.units import Unit, units_of

LLAMA_7B = Architecture("llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)
MIXTRAL = Architecture("mixtral", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, experts=8, active_experts=2)
EMBED, HEAD = Unit("embed", "embed"), Unit("head", "head")
ATTN, FFN = Unit("layers.0.attn", "attn", 0), Unit("layers.0.ffn", "ffn", 0)


def test_a_gated_layer_with_grouped_heads() -> None:
    grouped = replace(LLAMA_7B, kv_heads=8)
    assert matmul_flops_per_token(grouped, ATTN) == 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert matmul_flops_per_token(grouped, FFN) == 2 * 3 * 4096 * 11008
    assert matmul_flops_per_token(replace(grouped, gated=False), FFN) == 2 * 2 * 4096 * 11008


def test_a_step_is_six_flops_a_parameter_and_token_beside_attention() -> None:
    """6·P·tokens without the embedding, plus 6·layers·hidden·s a token of causal attention."""
    tokens, seq = 8192, 4096
    matrices = total_parameters(LLAMA_7B) - 32000 * 4096 - (2 * 32 + 1) * 4096
    assert step_model_flops(LLAMA_7B, tokens, seq) == tokens * (6 * matrices + 6 * 32 * 4096 * seq)


def test_only_the_picked_experts_count() -> None:
    """The published pair for 8 experts of which 2 work: the whole is 3.6 times too high, the experts 4 times."""
    everything = replace(MIXTRAL, active_experts=8)
    router = 2 * 8 * 4096
    experts = matmul_flops_per_token(MIXTRAL, FFN) - router
    assert (matmul_flops_per_token(everything, FFN) - router) / experts == 4
    ratio = step_model_flops(everything, 4096, 4096, causal=False) / step_model_flops(MIXTRAL, 4096, 4096, causal=False)
    assert ratio == pytest.approx(287.8 / 80.0, rel=0.05)


def test_the_look_up_is_free_and_the_head_is_not() -> None:
    assert unit_forward_flops(LLAMA_7B, EMBED, 100, 100) == 0
    assert unit_forward_flops(LLAMA_7B, HEAD, 100, 100) == 100 * 2 * 32000 * 4096
    assert attention_flops_per_token(LLAMA_7B, HEAD, 4096) == 0


def test_equal_tokens_in_long_sequences_cost_more() -> None:
    """One sequence of 8192 against eight of 1024 of a 7B model: 1.14 times."""
    long, short = step_model_flops(LLAMA_7B, 8192, 8192), step_model_flops(LLAMA_7B, 8192, 1024)
    assert long / short == pytest.approx(1.14, abs=0.01)


def test_the_worked_example_layer_is_one_third_attention() -> None:
    shape = replace(LLAMA_7B, hidden=2048, heads=16, kv_heads=16, ffn_hidden=5504)
    assert matmul_flops_per_token(shape, FFN) / matmul_flops_per_token(shape, ATTN) == pytest.approx(2, abs=0.05)


@given(st.integers(1, 100_000), st.integers(1, 200_000))
def test_a_window_only_ever_saves(seq_len: int, window: int) -> None:
    keys = keys_per_query(seq_len, window)
    assert 0 < keys <= keys_per_query(seq_len) == seq_len / 2
    assert keys <= window
    if window >= seq_len:
        assert keys == seq_len / 2


@given(st.integers(1, 300), st.integers(1, 400), st.booleans())
def test_masks_counted_one_by_one_agree(seq_len: int, window: int, chunked: bool) -> None:
    """The convention leaves out the half key by which a query's own position exceeds the mean."""

    def first(query: int) -> int:
        return query - query % window if chunked else max(0, query - window + 1)

    mean = sum(query + 1 - first(query) for query in range(seq_len)) / seq_len
    assert keys_per_query(seq_len, window, chunked=chunked) == pytest.approx(mean, abs=0.5001)


def test_windows_count_on_the_layers_that_have_them() -> None:
    mixed = replace(LLAMA_7B, sliding_window=1024, global_layers=(5, 11))
    local, whole = ATTN, Unit("layers.5.attn", "attn", 5)
    per_key = 4 * 32 * 128
    assert attention_flops_per_token(mixed, local, 8192) == per_key * (1024 - 64)
    assert attention_flops_per_token(mixed, whole, 8192) == per_key * 4096
    chunked = replace(mixed, chunked=True)
    assert attention_flops_per_token(chunked, local, 8192) == per_key * 512


def test_layers_add_up_in_parallel_residual_families() -> None:
    parallel = replace(LLAMA_7B, parallel_residual=True)
    assert len(units_of(parallel)) == 34
    assert step_model_flops(parallel, 4096, 4096) == step_model_flops(LLAMA_7B, 4096, 4096)
