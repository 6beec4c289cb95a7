"""Habits of software stacks that decide seconds: each knob moves the step the way its physics says."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction
from meshwright.model.architecture import Architecture
from meshwright.model.units import Unit
from meshwright.predictor.compute import UnitCost, costs_by_unit, share_of
from meshwright.predictor.exchanges import unit_exchange
from meshwright.predictor.stacks import Stack
from meshwright.predictor.step import predict

MakePlan = Callable[..., Plan]
FFN = Unit("layers.3.ffn", "ffn", 3)


def predicted(plan: Plan, stack: str) -> Prediction:
    """The plan's prediction under one stack."""
    return predict(replace(plan, setup=replace(plan.setup, stack=stack)))


def tensor_seconds(plan: Plan, slack: float, stack: Stack) -> float:
    """What tensor parallelism adds to a forward whose host works `slack` seconds longer than its device."""
    cost = UnitCost(1e-3, 2e-3, 1e-3, 1e-3, 0, 0, slack, slack)
    p = plan.setup.proposal
    share = share_of(plan.layout, plan.batch)
    return unit_exchange(p.arch, p.training, p.cluster, FFN, share, cost, plan.layout, stack).tp_forward_s


def test_an_exchange_hides_behind_the_host(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan, stack = make_plan(llama_7b, 1, 8, 2048, tp=4), Stack("plain", "", collective_us=80)
    alone = tensor_seconds(plan, float("-inf"), stack)
    assert tensor_seconds(plan, -1e-3, stack) == pytest.approx(alone)  # the host is far ahead
    assert tensor_seconds(plan, 1.0, stack) == pytest.approx(20e-6)  # the host is behind: only its own work counts
    halfway = tensor_seconds(plan, alone / 2, stack)
    assert halfway == pytest.approx(alone / 2)
    waiting = replace(stack, skew_us=100)
    assert tensor_seconds(plan, float("-inf"), waiting) == pytest.approx(alone + 100e-6)


def test_sequence_parallel_exchanges_run_beside_products(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 8, 4096, tp=4, sp=True)
    times = [tensor_seconds(plan, float("-inf"), Stack("plain", "", tp_overlap=share)) for share in (0.0, 0.5, 0.9)]
    assert times[0] > times[1] > times[2] > 0


def test_a_slow_host_decides_small_work_only(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """3.6 ms a layer and micro-batch, however many ranks share it, in vTrain's single-node table."""
    small = replace(llama_7b, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn_hidden=4096, layers=12, gated=False)
    quick, slow = "megatron-2023", "megatron-deepspeed-2023"
    plans = [make_plan(small, 1, 8, 1024, tp=tp, recompute="full") for tp in (1, 4)]
    layers = 12 * 8
    for plan in plans:
        assert 3e-3 < predicted(plan, slow).step_time_s / layers < 5e-3
        assert predicted(plan, quick).step_time_s < 0.6 * predicted(plan, slow).step_time_s
    large = make_plan(llama_7b, 4, 8, 4096)
    assert predicted(large, slow).terms["host"] < 0.02 * predicted(large, slow).step_time_s


def test_the_vocabulary_spread_over_the_ranks_balances_the_pipeline(
    make_plan: MakePlan, llama_7b: Architecture
) -> None:
    """arXiv:2411.05288: with a vocabulary of 256k the last stage holds the pipeline up."""
    plan = make_plan(replace(llama_7b, vocab=256_000), 1, 64, 2048, pp=8)
    plain, spread = (predicted(plan, name) for name in ("vocabulary-parallel", "vocabulary-parallel+vocab-1"))
    assert spread.step_time_s < 0.8 * plain.step_time_s
    assert spread.terms["imbalance"] < 0.01 * spread.step_time_s
    together = [found.terms["compute"] + found.terms["host"] for found in (plain, spread)]
    assert together[0] == pytest.approx(together[1], rel=1e-6)


def test_many_experts_a_rank_keep_the_host_busy(make_plan: MakePlan, llama_7b: Architecture) -> None:
    sparse = replace(llama_7b, hidden=2048, ffn_hidden=768, experts=128, active_experts=8)
    plan = make_plan(sparse, 1, 8, 4096, dp=8, ep=8)
    eager, graphs = (predicted(plan, name) for name in ("megatron-bridge", "megatron-bridge+graphs"))
    assert eager.terms["host"] > 0.1 * eager.step_time_s
    assert graphs.step_time_s < eager.step_time_s - 0.7 * eager.terms["host"]


def test_dispatch_beside_other_work_and_by_node(make_plan: MakePlan, llama_7b: Architecture) -> None:
    sparse = replace(llama_7b, hidden=2048, ffn_hidden=768, experts=128, active_experts=8)
    plan = make_plan(sparse, 1, 8, 4096, dp=32, ep=32)
    plain, dedup, beside = (
        predicted(plan, name).terms["ep_comm"]
        for name in ("megatron-2025", "megatron-2025+dedup", "megatron-2025+dedup+ep-overlap")
    )
    assert plain > 1.5 * dedup > 1.5 * beside


def test_a_state_space_block_costs_its_scan(make_plan: MakePlan, llama_7b: Architecture) -> None:
    windowed = replace(llama_7b, sliding_window=256, global_layers=(3, 7))
    scanned = replace(windowed, scan_width=8192)
    plain, scan = (predict(make_plan(arch, 1, 8, 4096)).step_time_s for arch in (windowed, scanned))
    assert scan > 1.1 * plain


def test_a_stack_that_exchanges_badly_or_hides_the_gathering(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 2, 2048, dp=64, zero=3, recompute="full")
    assert predicted(plan, "deepspeed").terms["dp_comm"] > 2 * predicted(plan, "fsdp").terms["dp_comm"]
    first = make_plan(llama_7b, 1, 2, 2048, dp=64, zero=1)
    assert predicted(first, "megatron-2024").terms["dp_comm"] < predicted(first, "megatron-2023").terms["dp_comm"]


def test_twice_the_memory_leaves_a_zero_bubble_schedule_no_bubble(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """Qi et al. 2024, table 4: ZB-2p beats ZB-1p by 2 to 10 %."""
    plan = make_plan(llama_7b, 1, 24, 1024, pp=8, schedule="zb-h1")
    once, twice = (predicted(plan, name) for name in ("zero-bubble", "zero-bubble+2p"))
    assert 0.85 < twice.step_time_s / once.step_time_s < 1
    assert twice.bubble_fraction < once.bubble_fraction


def test_softmax_of_too_few_rows_is_not_fused(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """16 heads over 8 ranks: 5.0 ms a layer for one sequence, 4.0 for two, in vTrain's single-node table: Megatron's
    kernel takes four rows of heads at a time. Attention that keeps no scores does not know of it."""
    small = replace(llama_7b, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn_hidden=4096, layers=12, gated=False)
    for stack, slower in (("megatron-deepspeed-2023+scores", True), ("megatron-deepspeed-2023", False)):
        one, two = (
            costs_by_unit(replace(plan.setup, stack=stack), share_of(plan.layout, plan.batch))["layers.3.attn"].total_s
            for plan in (make_plan(small, size, 8 * size, 1024, tp=8, recompute="full") for size in (1, 2))
        )
        assert (one > 1.2 * two) == slower
