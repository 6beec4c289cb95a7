"""Activation bytes against published arithmetic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.quantities import GIB
from meshwright.model.activations import boundary_bytes, logits_bytes, loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import architecture_of
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


SMALL = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 384,
         "vocab_size": 111}  # fmt: skip
PLAIN_GPT2 = {"n_embd": 128, "n_layer": 3, "n_head": 8, "vocab_size": 111, "n_positions": 300, "resid_pdrop": 0,
              "attn_pdrop": 0, "embd_pdrop": 0, "activation_function": "gelu"}  # fmt: skip


@pytest.mark.parametrize(
    ("class_name", "settings", "precision"),
    [
        ("LlamaConfig", SMALL | {"num_key_value_heads": 8}, "fp32"),
        ("LlamaConfig", SMALL | {"num_key_value_heads": 8}, "bf16"),
        ("Qwen3Config", SMALL | {"num_key_value_heads": 8, "head_dim": 32}, "fp32"),
        ("Gemma3TextConfig", SMALL | {"num_key_value_heads": 8, "head_dim": 16}, "fp32"),
        ("GPT2Config", PLAIN_GPT2, "fp32"),
    ],
)
def test_autograd_saves_what_is_counted(class_name: str, settings: dict[str, object], precision: str) -> None:
    """Every storage that autograd keeps of one layer of the real module, but for the norms' statistics."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, class_name)(**settings)
    arch = architecture_of(config.to_dict())
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, object] = {}
    ends: list[int] = []

    def keep(tensor: object) -> object:
        if tensor.untyped_storage().data_ptr() not in own:  # type: ignore[attr-defined]
            kept[tensor.untyped_storage().data_ptr()] = tensor  # type: ignore[attr-defined]
        return tensor

    layers = model.model.layers if hasattr(model, "model") else model.transformer.h
    for layer in layers:
        layer.register_forward_hook(lambda *_: ends.append(len(kept)))
    batch, seq = 2, 256
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.randint(0, arch.vocab, (batch, seq)), use_cache=False)
    real = sum(tensor.untyped_storage().nbytes() for tensor in list(kept.values())[ends[0] : ends[1]])  # type: ignore[attr-defined]
    recipe = Training(precision=precision)  # type: ignore[arg-type]
    counted = sum(unit_activation_bytes(arch, unit, recipe, batch, seq, eager_norms=True) for unit in (ATTN, FFN))
    assert real == pytest.approx(counted, rel=0.015)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.sampled_from([128, 1024, 4096]), st.booleans())
def test_bytes_grow_with_tokens_and_shrink_with_the_group(tp: int, micro_batch: int, seq_len: int, sp: bool) -> None:
    one = layer_bytes(LLAMA_7B, micro_batch, seq_len, tp=tp, sp=sp)
    assert layer_bytes(LLAMA_7B, 2 * micro_batch, seq_len, tp=tp, sp=sp) == 2 * one
    assert one <= layer_bytes(LLAMA_7B, micro_batch, seq_len)
    assert layer_bytes(LLAMA_7B, micro_batch, seq_len, tp=tp, sp=True) <= one
