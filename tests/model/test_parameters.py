"""Parameters by stage, expert degree and tensor group."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.model.architecture import Architecture
from meshwright.model.catalogue import named
from meshwright.model.parameters import active_parameters, stage_parameters, total_parameters, unit_parameters
from meshwright.model.shapes import padded_vocab, tensors_of
from meshwright.model.units import Unit, units_of

BLOOM = Architecture(
    "bloom", "bloom", 70, 14336, 112, 112, 128, 57344, 250880, gated=False, tied=True, norm="layer", qkv_bias=True,
    attention_out_bias=True, ffn_bias=True, positions="alibi", embed_norm=True,
)  # fmt: skip
MIXTRAL = Architecture("mixtral", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, experts=8, active_experts=2)
LLAMA = Architecture("llama", "llama", 32, 4096, 32, 8, 128, 14336, 128256)


def test_a_176b_pipeline_stage_by_stage() -> None:
    layer = [Unit("layers.0.attn", "attn", 0), Unit("layers.0.ffn", "ffn", 0)]
    h = 14336
    assert stage_parameters(BLOOM, layer) == 12 * h * h + 13 * h
    assert stage_parameters(BLOOM, layer) / 1e9 == pytest.approx(2.466, abs=0.001)
    embedding = unit_parameters(BLOOM, Unit("embed", "embed"))
    assert embedding / 1e9 == pytest.approx(3.597, abs=0.001)
    assert total_parameters(BLOOM) == 176_247_271_424
    assert (embedding + 5 * stage_parameters(BLOOM, layer)) / 4 / 1e9 == pytest.approx(3.98, abs=0.005)
    assert 6 * stage_parameters(BLOOM, layer) / 4 / 1e9 == pytest.approx(3.70, abs=0.005)


def test_a_tied_head_costs_a_copy_only_on_a_stage_of_its_own() -> None:
    embed, *_, head = units_of(BLOOM)
    apart = stage_parameters(BLOOM, [embed]) + stage_parameters(BLOOM, [head])
    assert apart - stage_parameters(BLOOM, [embed, head]) == 250880 * 14336


def test_experts_by_expert_degrees() -> None:
    ffn = Unit("layers.0.ffn", "ffn", 0)
    expert, router_and_norm = 3 * 4096 * 14336, 8 * 4096 + 4096
    assert unit_parameters(MIXTRAL, ffn) == 8 * expert + router_and_norm
    assert unit_parameters(MIXTRAL, ffn, tp=2) == 4 * expert + router_and_norm
    assert unit_parameters(MIXTRAL, ffn, tp=2, ep=4, etp=1) == 2 * expert + router_and_norm
    assert unit_parameters(MIXTRAL, ffn, tp=1, ep=4, etp=2) == expert + router_and_norm
    assert total_parameters(MIXTRAL) == 46_702_792_704
    assert active_parameters(MIXTRAL) == 12_879_925_248


def test_more_tensor_ranks_than_key_value_heads_replicate_whole_heads() -> None:
    few = replace(LLAMA, kv_heads=2)
    attn = Unit("layers.0.attn", "attn", 0)
    k = next(tensor for tensor in tensors_of(few, attn) if tensor.name == "k.weight")
    one_head = 128 * 4096
    assert [k.local_size(tp) for tp in (1, 2, 4, 8)] == [2 * one_head, one_head, one_head, one_head]


@given(st.sampled_from([1, 2, 4, 8]), st.booleans(), st.sampled_from(["rms", "layer"]), st.booleans())
def test_a_tensor_group_holds_everything_once_but_what_it_replicates(
    tp: int, gated: bool, norm: str, bias: bool
) -> None:
    arch = replace(LLAMA, gated=gated, norm=norm, qkv_bias=bias, ffn_bias=bias, attention_out_bias=bias)
    for unit in units_of(arch)[:3]:
        whole = sum(tensor.size for tensor in tensors_of(arch, unit) if tensor.split is None)
        assert tp * unit_parameters(arch, unit, tp) == unit_parameters(arch, unit) + (tp - 1) * whole


@pytest.mark.parametrize(
    ("vocab", "multiple", "tp", "padded"),
    [(50257, 128, 1, 50304), (50257, 128, 8, 51200), (50257, 1, 8, 50264), (32000, 128, 2, 32000),
     (50257, 1, 1, 50257)],
)  # fmt: skip
def test_vocabularies_are_padded_to_a_multiple_of_the_group(vocab: int, multiple: int, tp: int, padded: int) -> None:
    """GPT-2's vocabulary at Megatron-LM's default of 128: 50,304 rows on one rank, 51,200 on eight."""
    assert padded_vocab(vocab, multiple, tp) == padded
    arch = replace(LLAMA, vocab=vocab, head_bias=True)
    embed, *_, head = units_of(arch)
    assert unit_parameters(arch, embed, tp, vocab_multiple=multiple) == padded // tp * 4096
    assert unit_parameters(arch, head, tp, vocab_multiple=multiple) == padded // tp * 4097 + 4096
    assert total_parameters(arch, multiple, tp) - total_parameters(arch) == (padded - vocab) * (2 * 4096 + 1)
    layers = units_of(arch)[1:3]
    assert stage_parameters(arch, layers, tp, vocab_multiple=multiple) == stage_parameters(arch, layers, tp)


def test_latent_attention_on_a_tensor_group() -> None:
    """The compressing matrices and their norms lie on every rank, heads are cut."""
    deep = named("deepseek-v3")
    attn = Unit("layers.0.attn", "attn", 0)
    every_rank = 7168 + 7168 * (1536 + 576) + 1536 + 512
    assert unit_parameters(deep, attn) - every_rank == 8 * (unit_parameters(deep, attn, tp=8) - every_rank)
    assert unit_parameters(deep, attn) == 187_114_496  # 11.4 billion in 61 layers
    assert active_parameters(deep) / 1e9 == pytest.approx(37, rel=0.02)


def test_published_counts_of_active_parameters() -> None:
    """Counts of the models' own pages, some without the embedding, rounded as published."""
    assert active_parameters(named("deepseek-v2")) / 1e9 == pytest.approx(21, rel=0.02)
    assert active_parameters(named("qwen3-30b-a3b")) / 1e9 == pytest.approx(3.3, rel=0.02)
    assert active_parameters(named("qwen2-57b-a14b")) / 1e9 == pytest.approx(14, rel=0.03)
    assert active_parameters(named("llama-4-maverick")) / 1e9 == pytest.approx(17, rel=0.02)
