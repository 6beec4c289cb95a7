"""Who can run which plan, and that our own row says what the trainer says."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import RECOMPUTE, Layout
from meshwright.layout.partition import even_stages
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.runners import RUNNERS, refusals, runnable_by
from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import read_config
from meshwright.model.training import Training
from meshwright.model.units import units_of
from meshwright.trainer.models.families import FAMILIES
from meshwright.trainer.models.wrapped_families import WRAPPED
from meshwright.trainer.unsupported import unsupported

ARCH = Architecture("m", "llama", 8, 256, 8, 4, 32, 768, 2048)
CLUSTER = Cluster(device("A100-40GB-SXM"), 8, 8, link("nvlink3"), link("ib-hdr"), 40 * 2**30)


def layout_of(pp: int = 1, **values: object) -> Layout:
    stages = even_stages(ARCH, pp)
    return replace(Layout(stages, tuple(range(pp)), pp=pp), **values)  # type: ignore[arg-type]


def test_a_plain_layout_is_run_by_all() -> None:
    assert runnable_by(ARCH, Training(), layout_of(dp=8)) == ("meshwright", "megatron", "torchtitan", "deepspeed")


@pytest.mark.parametrize("training", [
    Training(), Training(precision="fp16"), Training(precision="fp8"), Training(precision="fp32", optimizer="sgd"),
    Training(optimizer="muon"), Training(task="lora"), Training(gradient_dtype="bf16"),
])  # fmt: skip
@pytest.mark.parametrize("arch", [
    ARCH, replace(ARCH, family="gpt_neox", norm="layer", gated=False), replace(ARCH, experts=8, active_experts=2),
    replace(ARCH, family="qwen3", qk_norm=True), replace(ARCH, sliding_window=128), replace(ARCH, tied=True),
])  # fmt: skip
def test_our_row_agrees_with_what_the_trainer_refuses(arch: Architecture, training: Training) -> None:
    setup = Setup("t", Proposal(arch, CLUSTER, training, 16, 128, Wanted()))
    for tp, pp, cp, zero, recompute in product((1, 2), (1, 2), (1, 2), (0, 1, 3), RECOMPUTE):
        layout = layout_of(pp, tp=tp, cp=cp, zero=zero, recompute=recompute, sp=tp > 1)
        refused = unsupported(Plan(setup, layout, Batch(16, 2, 8, 128)))
        assert ("meshwright" in runnable_by(arch, training, layout)) == (not refused), refused


def test_our_row_knows_the_trainers_families() -> None:
    assert RUNNERS["meshwright"].families == tuple(FAMILIES)
    assert RUNNERS["meshwright"].modules == {family: row.tensor for family, row in WRAPPED.items()}


SIZES = {"num_hidden_layers": 8, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
         "intermediate_size": 768, "vocab_size": 2048}  # fmt: skip


@pytest.mark.parametrize("config", [
    {"model_type": "gemma2", **SIZES}, {"model_type": "mistral", **SIZES}, {"model_type": "phi3", **SIZES},
    {"model_type": "gpt_neox", **SIZES}, {"model_type": "olmo2", **SIZES}, {"model_type": "llama", **SIZES},
    {"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 8, "vocab_size": 2048, "n_positions": 128},
    {"model_type": "mixtral", **SIZES, "num_local_experts": 8, "num_experts_per_tok": 2},
    {"model_type": "qwen3_moe", **SIZES, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
], ids=lambda config: config["model_type"])  # fmt: skip
def test_our_row_agrees_on_what_is_built_from_a_config_json(config: dict, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    arch = read_config(tmp_path)
    setup = Setup("t", Proposal(arch, CLUSTER, Training(), 16, 128, Wanted()))
    for tp, pp, sp in product((1, 2), (1, 2), (False, True)):
        stages = even_stages(arch, pp)
        layout = Layout(stages, tuple(range(pp)), pp=pp, tp=tp, etp=tp, sp=sp)
        refused = unsupported(Plan(setup, layout, Batch(16, 2, 8, 128)))
        assert ("meshwright" in runnable_by(arch, Training(), layout)) == (not refused), refused


def test_deepspeed_pipelines_take_zero_1_at_most_and_no_tensor_groups() -> None:
    assert refusals(ARCH, Training(), layout_of(pp=2, dp=4, zero=1))["deepspeed"] == ()
    assert refusals(ARCH, Training(), layout_of(pp=2, dp=4, zero=2))["deepspeed"] == (
        "does not join ZeRO-2 and pipelines",
    )
    assert (
        "does not join tensor parallelism and pipelines"
        in refusals(ARCH, Training(), layout_of(pp=2, tp=2))["deepspeed"]
    )
    assert refusals(ARCH, Training(), layout_of(dp=8, zero=3))["deepspeed"] == ()


def test_schedules() -> None:
    for schedule, runners in (
        ("gpipe", {"meshwright", "torchtitan"}),
        ("1f1b", {"meshwright", "megatron", "torchtitan", "deepspeed"}),
        ("zb-h1", {"meshwright", "torchtitan"}),
    ):
        assert set(runnable_by(ARCH, Training(), layout_of(pp=2, schedule=schedule))) == runners
    folded = Layout(even_stages(ARCH, 4), (0, 1, 1, 0), pp=2, vpp=2, schedule="zbv")
    assert runnable_by(ARCH, Training(), folded) == ("meshwright", "torchtitan")


def test_attention_and_feed_forward_on_different_ranks_is_ours_alone() -> None:
    names = [unit.name for unit in units_of(ARCH)]
    stages = tuple((name,) for name in names)
    layout = Layout(stages, tuple(i % 2 for i in range(len(names))), dp=4, pp=2)
    found = refusals(ARCH, Training(), layout)
    assert found["meshwright"] == ()
    for other in ("megatron", "torchtitan", "deepspeed"):
        assert any("places stages" in reason for reason in found[other])


def test_torchtitan_replicates_only_alone() -> None:
    assert refusals(ARCH, Training(), layout_of(dp=8))["torchtitan"] == ()
    assert "only when it is sharded" in refusals(ARCH, Training(), layout_of(pp=2, dp=4))["torchtitan"][0]
    assert refusals(ARCH, Training(), layout_of(pp=2, dp=4, zero=3))["torchtitan"] == ()
    assert refusals(ARCH, Training(), layout_of(pp=8))["torchtitan"] == ()


def test_torchtitan_has_sequence_parallelism_with_every_tensor_group_and_no_fp16() -> None:
    assert refusals(ARCH, Training(), layout_of(tp=2))["torchtitan"] == (
        "switches sequence parallelism on with every tensor group",
    )
    assert refusals(ARCH, Training(), layout_of(tp=2, sp=True))["torchtitan"] == ()
    assert "not fp16" in refusals(ARCH, Training(precision="fp16"), layout_of(dp=8))["torchtitan"][0]


def test_a_boundary_inside_a_layer_is_refused_by_the_others() -> None:
    names = tuple(unit.name for unit in units_of(ARCH))
    inside = Layout((names[:8], names[8:]), (0, 1), dp=4, pp=2)
    assert "cuts a model between whole layers only" in refusals(ARCH, Training(), inside)["megatron"]
    uneven = Layout((names[:5], names[5:]), (0, 1), pp=2)
    assert set(runnable_by(ARCH, Training(), uneven)) == {"meshwright", "megatron", "torchtitan"}
