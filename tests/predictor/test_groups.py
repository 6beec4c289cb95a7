"""On how many nodes the groups of ranks lie, against a count rank by rank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.mixed import mixed
from meshwright.cluster.topology import Cluster, Part
from meshwright.predictor.groups import group


def plain(gpus: int, per_node: int, gpu: str = "H100") -> Cluster:
    found = device(gpu)
    return Cluster(found, gpus, per_node, link(found.nvlink or "pcie4"), link("ib-ndr"), found.memory_bytes)


def counted(nodes: list[int], size: int, stride: int) -> int:
    """The most nodes that any group of `size` ranks, `stride` apart, lies on; `nodes` holds the node of each rank."""
    most = 0
    for start in range(0, len(nodes) - size * stride + 1, size * stride):
        for first in range(start, start + stride):
            most = max(most, len({nodes[first + index * stride] for index in range(size)}))
    return most


@given(
    st.sampled_from([1, 2, 4, 8]), st.integers(1, 6), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4, 8])
)
def test_powers_of_two_lie_as_counted(per_node: int, nodes: int, size: int, stride: int) -> None:
    gpus = per_node * nodes
    if gpus % (size * stride):
        return
    place = [rank // per_node for rank in range(gpus)]
    assert group(plain(gpus, per_node), size, stride).nodes == counted(place, size, stride)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([2, 4, 8])), min_size=2, max_size=3),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
def test_a_mixed_cluster_counts_at_least_the_nodes_there_are(
    kinds: list[tuple[int, int]], size: int, stride: int
) -> None:
    chip = device("A100")
    parts = [Part(chip, count * node, node, link("nvlink3"), chip.memory_bytes) for count, node in kinds]
    found = mixed(parts, link("ib-hdr"), None, 1.0, True)
    if found.gpus % (size * stride):
        return
    place = [(kind, rank // node) for kind, (count, node) in enumerate(kinds) for rank in range(count * node)]
    numbers = [sorted(set(place)).index(where) for where in place]
    most = counted(numbers, size, stride)
    assert group(found, size, stride).nodes >= min(most, 2)  # that it crosses a border is never overlooked
    assert (group(found, size, stride).nodes > 1) or most == 1


@pytest.mark.parametrize(
    ("gpus", "size", "stride", "nodes"),
    [(64, 64, 1, 1), (72, 72, 1, 1), (128, 64, 1, 1), (128, 128, 1, 2), (128, 2, 64, 2), (256, 8, 8, 1),
     (144, 8, 1, 1)],
)  # fmt: skip
def test_a_rack_of_72_is_one_node_to_the_fast_link(gpus: int, size: int, stride: int, nodes: int) -> None:
    assert group(plain(gpus, 4, "GB200"), size, stride).nodes == nodes
