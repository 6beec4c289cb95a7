"""What a row of a measured table says about the time of its software, and what is decided where it is silent."""

from dataclasses import replace

import pytest

from meshwright.files.rows import Row
from meshwright.planner.configurations import Configuration, configuration_of
from meshwright.planner.rows_stack import row_stack

BRIDGE = Row(
    2, framework="Megatron-Bridge/Megatron-Core", date="26.02", gpu="GB300", gpus=64, dp=64, tp=1, pp=1, ep=64,
    micro_batch=1, global_batch=512, seq_len=4096, precision="nvfp4", model_name="Qwen3_235B_a22B", experts=128,
    active_experts=8, layers=94, hidden=4096, heads=64, kv_heads=4, head_dim=128, ffn_hidden=1536, vocab=151936,
)  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "modifiers"),
    [
        ("", set()),
        ("MoE dispatcher hybridep", {"dedup"}),
        ("MoE dispatcher deepep; MoE all-to-all overlap", {"dedup", "ep-overlap"}),
        ("MoE dispatcher hybridep; CUDA graph full_iteration []", {"dedup", "graphs"}),
        ("CUDA graph transformer_engine ['attn', 'moe_router']", {"some-graphs"}),
        ("overlap features off; cross-entropy fusion on", {"no-overlap", "fused-loss"}),
    ],
)  # fmt: skip
def test_overlap_notes_become_habits(notes: str, modifiers: set[str]) -> None:
    assert set(row_stack(replace(BRIDGE, overlap_notes=notes)).name.split("+")[1:]) == modifiers


def test_a_late_release_on_a_rack_overlaps_without_saying_so() -> None:
    late = replace(BRIDGE, date="26.08")
    assert {"ep-overlap", "graphs"} <= set(row_stack(late).name.split("+"))
    assert "graphs" not in row_stack(replace(late, gpu="H100-80GB-SXM")).name
    assert "graphs" not in row_stack(replace(late, experts=None)).name


def test_experts_of_fixed_capacity_spare_the_host_a_wait() -> None:
    assert row_stack(replace(BRIDGE, model_name="Qwen3_30B_a3B (tokendrop)")).stack.graphs == 0.5


def test_old_software_exchanges_gradients_after_the_backward() -> None:
    for framework, date, overlap in (
        ("Megatron-LM", "2020-09", False), ("NeMo/Megatron-Core", "2024-11", True),
        ("Megatron-DeepSpeed", "2022-02", False),
    ):  # fmt: skip
        row = replace(BRIDGE, framework=framework, date=date, gpu="A100-80GB-SXM", precision="bf16", ep=None)
        row = replace(row, model_name="GPT 22B", experts=None, active_experts=None, layers=48, hidden=6144, heads=64)
        row = replace(row, kv_heads=64, head_dim=96, ffn_hidden=24576, gpus=64, tp=8, dp=8, global_batch=64)
        found = configuration_of(row)
        assert isinstance(found, Configuration), found
        assert found.plan.layout.overlap is overlap


def test_four_bit_rows_compute_in_four_bits() -> None:
    found = configuration_of(BRIDGE)
    assert isinstance(found, Configuration), found
    assert found.plan.setup.proposal.training.precision == "nvfp4"


def test_megatron_recomputes_no_more_layers_than_it_must() -> None:
    """Llama 70B on 16 H100 with tp 4 and pp 4 in bf16 does not fit without recompute, and needs not all of it."""
    row = Row(
        2, framework="NeMo/Megatron-Core", date="2024-11", gpu="H100-80GB-SXM", gpus=16, dp=1, tp=4, pp=4,
        micro_batch=1, global_batch=32, seq_len=4096, precision="bf16", model_name="Llama2-70B", layers=80, hidden=8192,
        heads=64, kv_heads=8, head_dim=128, ffn_hidden=28672, vocab=32000,
    )  # fmt: skip
    found = configuration_of(row)
    assert isinstance(found, Configuration), found
    layout = found.plan.layout
    assert layout.recompute == "full"
    assert layout.recompute_layers is not None
    assert 0 < layout.recompute_layers < 20
    assert any(f"{layout.recompute_layers} layers of a stage" in text for text in found.assumed)
