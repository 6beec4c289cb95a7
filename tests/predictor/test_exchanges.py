"""What replicas exchange: volumes by ZeRO stage, buckets, and where groups lie."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.training import Training
from meshwright.model.units import Unit
from meshwright.predictor import groups
from meshwright.predictor.collectives import allgather_s, reducescatter_s
from meshwright.predictor.compute import UnitCost, share_of
from meshwright.predictor.constants import COLLECTIVE_EFFICIENCY
from meshwright.predictor.exchanges import (
    Parameters,
    StepExchange,
    UnitExchange,
    replica_groups,
    step_exchange,
    unit_exchange,
)
from meshwright.predictor.stacks import stack_of

MakePlan = Callable[..., Plan]
ONE_B = 1e9


def exchange(plan: Plan, parameters: float = ONE_B, units: int = 32) -> StepExchange:
    """The exchange of one rank that holds so many parameters."""
    cluster = plan.setup.proposal.cluster
    among = replica_groups(cluster, plan.layout)
    arch, training, layout = plan.setup.proposal.arch, plan.setup.proposal.training, plan.layout
    held = Parameters(parameters, 0)
    return step_exchange(arch, training, cluster, layout.zero, layout.bucket_mib, among, held, units)


def bytes_moved(plan: Plan, seconds: float) -> float:
    """Bytes that a link inside a node moves in that time."""
    return seconds * plan.setup.proposal.cluster.intra.bytes_per_s.value * COLLECTIVE_EFFICIENCY["intra"].value


def test_traffic_of_full_sharding_against_replication(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """1 B parameters in bf16, four ranks, 32 micro-batches: 2 gathers and 1 reduction of 2 GB · 3/4 for each
    micro-batch, 144 GB a step, against 2 · 2 GB · 3/4 = 3 GB."""
    options = {"dp": 4, "gradient_dtype": "bf16", "bucket_mib": 1000.0}
    sharded, replicated = (make_plan(llama_7b, 2, 32, 2048, zero=zero, **options) for zero in (3, 0))
    each = exchange(sharded, units=1)
    moved = 32 * bytes_moved(sharded, each.forward_s + each.backward_s)
    assert moved == pytest.approx(144e9, rel=0.06)  # and what such messages lose to the largest
    assert bytes_moved(replicated, exchange(replicated).end_s) == pytest.approx(3e9, rel=0.08)


def test_sharded_optimizer_states_move_as_much_as_an_all_reduce(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plain, sharded = (
        exchange(make_plan(llama_7b, 1, 4, 2048, dp=8, zero=zero, gradient_dtype="bf16")) for zero in (0, 1)
    )
    assert sharded.end_s + sharded.after_s == pytest.approx(plain.end_s, rel=0.05)
    assert plain.after_s == 0


def test_larger_buckets_mean_fewer_rounds_and_less_latency(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """2.5 B parameters over 32 ranks in buckets of 5e8 half-precision elements: five rounds."""
    sweep = [
        exchange(make_plan(llama_7b, 1, 4, 2048, dp=32, gradient_dtype="bf16", bucket_mib=mib), 2.5e9)
        for mib in (25, 100, 5e8 * 2 / 2**20, 4800)
    ]
    assert [one.rounds for one in sweep] == [191, 48, 5, 1]
    times = [one.end_s for one in sweep]
    assert times == sorted(times, reverse=True)


def test_hybrid_sharding_reduces_over_nodes_once(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 4, 2048, dp=8, zero=3, shard_group=4, a_node=4)
    cluster = plan.setup.proposal.cluster
    found = exchange(plan, units=1)
    inside = allgather_s(cluster, 2e9, 4, 1)
    assert found.forward_s == pytest.approx(inside)
    assert found.backward_s == pytest.approx(inside + reducescatter_s(cluster, 4e9, 4, 1))
    assert found.end_s > 0


def test_adapters_exchange_almost_nothing(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 4, 2048, dp=8)
    lora = replace(plan.setup, proposal=replace(plan.setup.proposal, training=Training(task="lora")))
    assert exchange(replace(plan, setup=lora)).end_s < 0.05 * exchange(plan).end_s


def test_groups_lie_where_rank_numbers_put_them(
    make_plan: MakePlan, make_cluster: Callable[..., Cluster], llama_7b: Architecture
) -> None:
    """Tensor innermost, then context, data and pipeline: 64 ranks in nodes of eight."""
    layout = make_plan(llama_7b, 1, 8, 2048, tp=4, cp=2, dp=4, pp=2).layout
    cluster = make_cluster(gpus=64)
    assert groups.tensor_group(cluster, layout) == groups.Group(4, 1)
    assert groups.context_group(cluster, layout) == groups.Group(2, 1)
    assert groups.gradient_group(cluster, layout) == groups.Group(8, 4)
    assert groups.hop_nodes(cluster, layout) == 2
    small = make_plan(llama_7b, 1, 8, 2048, tp=2, dp=2, pp=2).layout
    assert groups.hop_nodes(make_cluster(gpus=8), small) == 1


def test_a_group_that_does_not_divide_a_node_lies_on_two(make_cluster: Callable[..., Cluster]) -> None:
    # ranks 6, 7 and 8 are the third group of three: the last two of one node of eight, and the first of the next
    assert groups.group(make_cluster(gpus=24), 3, 1) == groups.Group(3, 2)
    assert groups.group(make_cluster(gpus=6), 3, 1) == groups.Group(3, 1)
    assert groups.group(make_cluster(gpus=24), 4, 2) == groups.Group(4, 1)


def unit_seconds(plan: Plan, unit: Unit, imbalance: float = 1.0) -> UnitExchange:
    """The collectives of one unit of a plan, with nothing to hide behind."""
    arch, cluster = plan.setup.proposal.arch, plan.setup.proposal.cluster
    training = replace(plan.setup.proposal.training, expert_imbalance=imbalance)
    share, idle = share_of(plan.layout, plan.batch), UnitCost(0, 0, 0, 0, 0)
    return unit_exchange(arch, training, cluster, unit, share, idle, plan.layout, stack_of(plan.setup))


def test_only_layers_with_experts_dispatch_and_the_fullest_rank_decides(
    make_plan: MakePlan, llama_7b: Architecture
) -> None:
    mixed = replace(llama_7b, experts=8, active_experts=2, dense_layers=(0,))
    plan = make_plan(mixed, 1, 8, 4096, dp=8, ep=4)
    dense, sparse = (Unit(f"layers.{layer}.ffn", "ffn", layer) for layer in (0, 1))
    assert unit_seconds(plan, dense).ep_forward_s == 0
    even, uneven = (unit_seconds(plan, sparse, imbalance).ep_forward_s for imbalance in (1.0, 1.5))
    assert 1.3 * even < uneven <= 1.5 * even


def test_latent_attention_sends_restored_keys_and_values_round_the_ring(
    make_plan: MakePlan, llama_7b: Architecture
) -> None:
    """320 values a head and token instead of 256."""
    attn = Unit("layers.0.attn", "attn", 0)
    latent = replace(llama_7b, head_dim=192, latent=LatentAttention(512, 128, 64, 128))
    wide, plain = (
        unit_seconds(make_plan(arch, 1, 8, 65536, dp=2, cp=4), attn).cp_forward_s for arch in (latent, llama_7b)
    )
    assert wide / plain == pytest.approx(320 / 256, rel=0.02)
