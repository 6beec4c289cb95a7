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
    assert allreduce_s(CLUSTER, 8e9, 8) == pytest.approx(2 * 7 / 8 * 8e9 / rate, rel=0.01)


def test_between_nodes_each_member_carries_its_share_over_its_own_lane() -> None:
    """Eight ranks in each of two nodes: the network moves 2 · 1/2 of an eighth of the buffer for each of them."""
    lane = CLUSTER.inter.bytes_per_s.value * COLLECTIVE_EFFICIENCY["inter"].value
    over_network = allreduce_s(CLUSTER, 8e9, 16, 2) - allreduce_s(CLUSTER, 8e9, 8, 1)
    assert over_network == pytest.approx(8e9 / 8 / lane, rel=0.02)


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
