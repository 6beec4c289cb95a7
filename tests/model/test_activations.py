"""Activation bytes against published arithmetic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.quantities import GIB
from meshwright.model.activations import boundary_bytes, logits_bytes, loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.training import Training
from meshwright.model.units import Unit, units_of

BF16 = Training(precision="bf16")
LLAMA_7B = Architecture("llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)
GPT = Architecture("gpt", "gpt2", 48, 6144, 64, 64, 96, 4 * 6144, 51200, gated=False, norm="layer", qkv_bias=True,
                   attention_out_bias=True, ffn_bias=True)  # fmt: skip
ATTN, FFN = Unit("layers.0.attn", "attn", 0), Unit("layers.0.ffn", "ffn", 0)


def layer_bytes(arch: Architecture, micro_batch: int, seq_len: int, **how: object) -> int:
    return sum(unit_activation_bytes(arch, unit, BF16, micro_batch, seq_len, **how) for unit in (ATTN, FFN))  # type: ignore[arg-type]


def test_a_llama_layer_saves_16sbh_and_8sbf() -> None:
    s, b, h, f = 4096, 2, 4096, 11008
    log_sums = 4 * 32 * s * b  # one fp32 value for each query and head
    assert layer_bytes(LLAMA_7B, b, s) == 16 * s * b * h + 8 * s * b * f + log_sums
    assert layer_bytes(LLAMA_7B, b, s) / GIB == pytest.approx(1.17, rel=0.01)


def test_full_recompute_keeps_one_input_a_layer() -> None:
    total = sum(unit_activation_bytes(LLAMA_7B, unit, BF16, 2, 4096, "full") for unit in units_of(LLAMA_7B)[1:-1])
    assert total == 32 * boundary_bytes(LLAMA_7B, BF16, 2, 4096) == 2 * GIB


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_gpt_layers_follow_korthikanti_without_dropout_and_scores(tp: int) -> None:
    """Equations 2 and 4 count sbh(10 + 24/t) and sbh·34/t beside the scores; masks of dropout are 2 of the 10."""
    s, b, h = 2048, 4, 6144
    log_sums = 4 * 64 * s * b // tp
    assert layer_bytes(GPT, b, s, tp=tp) == s * b * h * 8 + s * b * h * 24 // tp + log_sums
    assert layer_bytes(GPT, b, s, tp=tp, sp=True) == s * b * h * 32 // tp + log_sums


def test_selective_lies_between_and_keeps_only_matrix_results() -> None:
    s, b, h, f = 4096, 2, 4096, 11008
    selective = layer_bytes(LLAMA_7B, b, s, recompute="selective")
    assert selective == 12 * s * b * h + 4 * s * b * f + 4 * 32 * s * b
    assert layer_bytes(LLAMA_7B, b, s, recompute="full") < selective < layer_bytes(LLAMA_7B, b, s)


def test_grouped_heads_save_fewer_keys_and_values() -> None:
    grouped = replace(LLAMA_7B, kv_heads=8)
    assert layer_bytes(LLAMA_7B, 1, 1024) - layer_bytes(grouped, 1, 1024) == 2 * 2 * 24 * 128 * 1024


def test_experts_save_every_dispatched_copy() -> None:
    sparse = replace(LLAMA_7B, experts=8, active_experts=2)
    tokens, h, f = 1024, 4096, 11008
    routing = 2 * 4 * 8 * tokens
    expected = tokens * (2 * h + 2 * h) + 2 * tokens * (8 * f + 2 * h + 2 * h) + routing
    assert unit_activation_bytes(sparse, FFN, BF16, 1, tokens) == expected
    whole_experts = unit_activation_bytes(sparse, FFN, BF16, 1, tokens, tp=4, sp=True, etp=1)
    assert whole_experts == expected // 4


def test_of_experts_the_fullest_rank_counts() -> None:
    sparse = replace(LLAMA_7B, experts=8, active_experts=2)
    uneven = Training(precision="bf16", expert_imbalance=1.5)

    def ffn(training: Training, ep: int) -> int:
        return unit_activation_bytes(sparse, FFN, training, 1, 1024, etp=1, ep=ep)

    dispatched = 2 * 1024 * (8 * 11008 + 4 * 4096)
    assert ffn(uneven, 4) - ffn(BF16, 4) == dispatched // 2
    assert ffn(uneven, 1) == ffn(BF16, 1) == ffn(BF16, 4)  # one rank has all experts, whatever the router does
    assert ffn(replace(uneven, expert_imbalance=9.0), 4) - ffn(BF16, 4) == 3 * dispatched


def test_dense_layers_of_a_model_with_experts_save_what_a_dense_model_does() -> None:
    mixed = replace(LLAMA_7B, experts=8, active_experts=2, dense_layers=(0,), dense_ffn_hidden=5504)
    dense = unit_activation_bytes(replace(LLAMA_7B, ffn_hidden=5504), FFN, BF16, 1, 1024)
    assert unit_activation_bytes(mixed, FFN, BF16, 1, 1024) == dense
    assert unit_activation_bytes(mixed, Unit("layers.1.ffn", "ffn", 1), BF16, 1, 1024) > dense


def test_latent_attention_saves_whole_heads_and_the_compressed_vectors() -> None:
    """DeepSeek-V3: 128 heads of 192 (q, k) and 128 (v and result), and 1536 + 512 + 64 compressed, normed again."""
    latent = LatentAttention(512, 128, 64, 128, 1536)
    arch = replace(LLAMA_7B, hidden=7168, heads=128, kv_heads=128, head_dim=192, latent=latent)
    norm = 2 * 7168
    heads = 128 * (192 + 192 + 128 + 128)
    compressed = 1536 + 512 + 64 + 1536 + 512
    assert unit_activation_bytes(arch, ATTN, BF16, 1, 1) == 2 * (norm + heads + compressed) + 4 * 128
    assert unit_activation_bytes(arch, ATTN, BF16, 1, 1, tp=8, sp=True) * 8 == unit_activation_bytes(
        arch, ATTN, BF16, 1, 1
    )
    replicated = unit_activation_bytes(arch, ATTN, BF16, 1, 8, tp=8)
    assert replicated == 8 * 2 * (norm + compressed) + 2 * heads + 4 * 128


def test_windows_and_sinks_save_nothing_more() -> None:
    plain = unit_activation_bytes(LLAMA_7B, ATTN, BF16, 1, 4096)
    windowed = replace(LLAMA_7B, sliding_window=128, global_layers=(1,), sinks=True)
    assert unit_activation_bytes(windowed, ATTN, BF16, 1, 4096) == plain


def test_a_parallel_residual_layer_saves_its_input_once() -> None:
    parallel = replace(GPT, parallel_residual=True)
    one = unit_activation_bytes(parallel, Unit("layers.0", "layer", 0), BF16, 1, 2048)
    assert layer_bytes(GPT, 1, 2048) - one == boundary_bytes(GPT, BF16, 1, 2048)
    one_norm = unit_activation_bytes(replace(parallel, layer_norms=1), Unit("layers.0", "layer", 0), BF16, 1, 2048)
    assert one - one_norm == boundary_bytes(GPT, BF16, 1, 2048)


def test_fp32_doubles_and_fp8_shrinks() -> None:
    half = unit_activation_bytes(LLAMA_7B, FFN, BF16, 1, 1024)
    assert unit_activation_bytes(LLAMA_7B, FFN, Training(precision="fp32"), 1, 1024) == 2 * half
    fp8 = unit_activation_bytes(LLAMA_7B, FFN, Training(precision="fp8"), 1, 1024)
    assert half - fp8 == 1024 * (4096 + 11008)  # a byte less for each value of the two matrix inputs


@pytest.mark.parametrize(
    ("tokens", "vocab", "width", "gib"),
    [(4096, 128_000, 2, 0.98), (11_600, 248_320, 4, 10.7), (8192, 151_936, 4, 4.64), (1024, 151_936, 4, 0.58),
     (65_536, 128_000, 4, 31.3)],
)  # fmt: skip
def test_logits_of_large_vocabularies(tokens: int, vocab: int, width: int, gib: float) -> None:
    assert logits_bytes(replace(LLAMA_7B, vocab=vocab), tokens, width) / GIB == pytest.approx(gib, rel=0.01)


def test_the_loss_holds_scores_their_fp32_copy_and_the_gradient() -> None:
    assert loss_bytes(LLAMA_7B, BF16, 2, 4096) / GIB == pytest.approx(2.44, rel=0.01)
    assert loss_bytes(LLAMA_7B, BF16, 2, 4096, tp=4) * 4 == loss_bytes(LLAMA_7B, BF16, 2, 4096)
    assert loss_bytes(LLAMA_7B, BF16, 2, 4096, tp=4, vocab_parallel=False) == loss_bytes(LLAMA_7B, BF16, 2, 4096)
    assert loss_bytes(LLAMA_7B, BF16, 2, 4096, chunk=1024) * 8 == loss_bytes(LLAMA_7B, BF16, 2, 4096)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.sampled_from([128, 1024, 4096]), st.booleans())
def test_bytes_grow_with_tokens_and_shrink_with_the_group(tp: int, micro_batch: int, seq_len: int, sp: bool) -> None:
    one = layer_bytes(LLAMA_7B, micro_batch, seq_len, tp=tp, sp=sp)
    assert layer_bytes(LLAMA_7B, 2 * micro_batch, seq_len, tp=tp, sp=sp) == 2 * one
    assert one <= layer_bytes(LLAMA_7B, micro_batch, seq_len)
    assert layer_bytes(LLAMA_7B, micro_batch, seq_len, tp=tp, sp=True) <= one
