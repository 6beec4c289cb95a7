"""Collectives: known limits, and the order that faster links and larger messages impose."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.figures import Constant
from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.predictor.collectives import allgather_s, allreduce_s, alltoall_s, p2p_s, reducescatter_s
from meshwright.predictor.constants import COLLECTIVE_EFFICIENCY

DEVICE = catalogue.device("A100-80GB-SXM")
CLUSTER = Cluster(DEVICE, 64, 8, catalogue.link("nvlink3"), catalogue.link("ib-hdr"), DEVICE.memory_bytes)

SIZES = st.floats(1.0, 1e11)
GROUPS = st.tuples(st.integers(2, 8), st.sampled_from([1, 2, 4, 8])).map(lambda pair: (pair[0] * pair[1], pair[1]))
FUNCTIONS = (allreduce_s, allgather_s, reducescatter_s, alltoall_s)


def faster(cluster: Cluster, intra: float, inter: float) -> Cluster:
    """The cluster with its links' rates multiplied."""
    return replace(
        cluster,
        intra=replace(cluster.intra, bytes_per_s=Constant(cluster.intra.bytes_per_s.value * intra, "guessed")),
        inter=replace(cluster.inter, bytes_per_s=Constant(cluster.inter.bytes_per_s.value * inter, "guessed")),
    )


def test_a_large_all_reduce_in_a_node_moves_twice_seven_eighths_of_its_bytes() -> None:
    rate = CLUSTER.intra.bytes_per_s.value * COLLECTIVE_EFFICIENCY["intra"].value
    assert allreduce_s(CLUSTER, 8e9, 8) == pytest.approx(2 * 7 / 8 * 8e9 / rate, rel=0.02)


def test_between_nodes_each_member_carries_its_share_over_its_own_lane() -> None:
    """Eight ranks in each of two nodes: eight rings of all 16 ranks, each with an eighth of the buffer, of which 15
    sixteenths pass every link twice, that between the nodes too."""
    lane = CLUSTER.inter.bytes_per_s.value * COLLECTIVE_EFFICIENCY["inter"].value
    assert allreduce_s(CLUSTER, 8e9, 16, 2) == pytest.approx(2 * 15 / 16 * 8e9 / 8 / lane, rel=0.03)


# 4 nodes of 8 B200 with 400 Gb/s a device, and one such node (stas00/ml-engineering, network/README.md): bytes, GB/s
# of bus bandwidth.
MEASURED = [(4, 2**34, 381.8), (4, 2**30, 362.0), (4, 2**28, 229.1), (1, 2**30, 723.3), (1, 2**26, 400.6)]


@pytest.mark.parametrize(("nodes", "size", "bus"), MEASURED)
def test_all_reduces_of_b200_nodes_are_near_the_measured_ones(nodes: int, size: int, bus: float) -> None:
    device = catalogue.device("B200")
    cluster = Cluster(device, 32, 8, catalogue.link("nvlink5"), catalogue.link("50 GB/s"), device.memory_bytes)
    ranks = 8 * nodes
    seconds = 2 * (ranks - 1) / ranks * size / (bus * 1e9)
    assert allreduce_s(cluster, size, ranks, nodes) == pytest.approx(seconds, rel=0.3)


@given(st.floats(1e5, 1e11), GROUPS)
def test_a_dispatch_that_knows_nodes_is_never_slower_between_them(size: float, group: tuple[int, int]) -> None:
    """Where the links inside a node are no bottleneck."""
    quick = faster(CLUSTER, 100, 1)
    assert alltoall_s(quick, size, *group, copies=8) <= alltoall_s(quick, size, *group) * (1 + 1e-3)


def test_one_rank_and_no_bytes_cost_nothing() -> None:
    for function in FUNCTIONS:
        assert function(CLUSTER, 1e9, 1) == 0.0
        assert function(CLUSTER, 0, 8) == 0.0
    assert p2p_s(CLUSTER, 0) == 0.0


@given(SIZES, SIZES, GROUPS, st.sampled_from(FUNCTIONS))
def test_more_bytes_never_take_less_time(
    one: float, other: float, group: tuple[int, int], function: Callable[..., float]
) -> None:
    less, more = sorted((one, other))
    assert function(CLUSTER, less, *group) <= function(CLUSTER, more, *group)
    assert p2p_s(CLUSTER, less, group[1]) <= p2p_s(CLUSTER, more, group[1])


@given(SIZES, GROUPS, st.floats(1, 10), st.floats(1, 10), st.sampled_from(FUNCTIONS))
def test_a_faster_link_is_never_slower(
    size: float, group: tuple[int, int], intra: float, inter: float, function: Callable[..., float]
) -> None:
    assert function(faster(CLUSTER, intra, inter), size, *group) <= function(CLUSTER, size, *group) * (1 + 1e-12)


@given(SIZES, st.integers(1, 7))
def test_a_larger_group_in_a_node_never_reduces_faster(size: float, ranks: int) -> None:
    assert allreduce_s(CLUSTER, size, ranks) <= allreduce_s(CLUSTER, size, ranks + 1)


@given(SIZES, GROUPS)
def test_an_all_reduce_costs_no_more_than_its_two_halves(size: float, group: tuple[int, int]) -> None:
    halves = reducescatter_s(CLUSTER, size, *group) + allgather_s(CLUSTER, size, *group)
    assert allreduce_s(CLUSTER, size, *group) <= halves
