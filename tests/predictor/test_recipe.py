"""Bytes a parameter: optimizers, precisions, stacks, and where the states lie."""

from collections.abc import Callable
from typing import Any

import pytest

from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import total_parameters
from meshwright.predictor.memory import rank_memory

MakePlan = Callable[..., Plan]
PARAMETERS = 6_738_415_616  # of Llama 7B, as its authors count
ENDS = 2 * 32000 * 4096  # embedding and output matrix


def only(make_plan: MakePlan, arch: Architecture, **options: Any) -> StageMemory:
    """The one pipeline rank of a plan of two micro-batches."""
    plan = make_plan(arch, 1, 2, 256, gpu="H100-SXM", **options)
    (rank,) = rank_memory(plan.setup, plan.layout, plan.batch)
    return rank


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [
        ("adamw", 8 * PARAMETERS), ("sgd", 0), ("adamw-8bit", (2 + 2 * 4 / 256) * PARAMETERS),
        ("muon", 4 * (PARAMETERS - ENDS - 4096) + 8 * (ENDS + 4096)),  # with the final norm
    ],
)  # fmt: skip
def test_moments(make_plan: MakePlan, llama_7b: Architecture, optimizer: str, moments: float) -> None:
    rank = only(make_plan, llama_7b, optimizer=optimizer)
    assert rank.parts["optimizer"] == pytest.approx(moments, rel=1e-9)
    assert rank.parts["master"] == 4 * PARAMETERS
    assert rank.parts["weights"] == 2 * PARAMETERS


def test_fp8_keeps_a_byte_more_a_weight(make_plan: MakePlan, llama_7b: Architecture) -> None:
    assert only(make_plan, llama_7b, precision="fp8").parts["weights"] == 3 * PARAMETERS


@pytest.mark.parametrize(("runner", "states"), [("any", (2, 4, 4, 8)), ("torchtitan", (4, 4, 0, 8))])
def test_who_keeps_fp32_weights_needs_no_master_copy(
    make_plan: MakePlan, llama_7b: Architecture, runner: str, states: tuple[int, ...]
) -> None:
    rank = only(make_plan, llama_7b, runnable_by=runner)
    held = tuple(rank.parts[kind] / PARAMETERS for kind in ("weights", "gradients", "master", "optimizer"))
    assert held == states


def test_the_optimizer_in_host_memory_takes_its_states_along(make_plan: MakePlan, llama_7b: Architecture) -> None:
    here, away = (only(make_plan, llama_7b, offload=where) for where in ("none", "optimizer"))
    assert (away.parts["optimizer"], away.parts["master"]) == (0, 0)
    assert away.parts["gradients"] == here.parts["gradients"]


def test_parameters_in_host_memory_leave_two_layers_here(make_plan: MakePlan, llama_7b: Architecture) -> None:
    rank = only(make_plan, llama_7b, offload="parameters", recompute="full")
    assert rank.parts["weights"] == rank.parts["gradients"] == 0
    layer = (PARAMETERS - ENDS - 4096) / 32
    assert rank.parts["gathered"] == pytest.approx(2 * 2 * layer, rel=1e-6)


def test_full_sharding_gathers_two_layers(make_plan: MakePlan, llama_7b: Architecture) -> None:
    layer = (total_parameters(llama_7b) - ENDS - 4096) / 32
    assert only(make_plan, llama_7b, dp=8, zero=3).parts["gathered"] == pytest.approx(2 * 2 * layer, rel=1e-6)


def test_half_precision_gradients_are_copied_for_the_step(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """DeepSpeed's ZeRO casts this rank's share of half-precision gradients to fp32: 4 bytes a parameter it updates."""
    rank = only(make_plan, llama_7b, dp=8, zero=1, gradient_dtype="bf16", runnable_by="deepspeed", recompute="full")
    assert rank.moments["optimizer step"] > rank.moments["backward"]
    assert rank.parts["step"] == pytest.approx(4 * PARAMETERS / 8, rel=1e-9)
    assert rank.parts["activations"] == rank.parts["logits"] == 0
