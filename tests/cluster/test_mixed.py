"""Which devices the pipeline ranks of a mixed cluster lie on, counted rank by rank."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.mixed import describe, device_of, memory_limits, mixed, slowest
from meshwright.cluster.topology import Cluster, Part

KINDS = ("H100", "A100-40GB", "V100-16GB", "L40S")


def part(name: str, gpus: int, per_node: int = 8) -> Part:
    found = device(name)
    return Part(found, gpus, per_node, link(found.nvlink or found.pcie), found.memory_bytes)


def cluster(*parts: Part) -> Cluster:
    return mixed(parts, link("ib-hdr"), None, 1.0, True)


def test_the_summary_is_what_a_group_anywhere_can_count_on() -> None:
    found = cluster(part("H100", 16), part("A100-40GB", 8, 4))
    assert (found.device.name, found.gpus, found.gpus_per_node, found.nodes) == ("A100-40GB-SXM", 24, 4, 4)
    assert found.intra.name == "nvlink3"
    assert found.memory_bytes == device("A100-40GB").memory_bytes
    assert (found.joined, found.alignment, found.one_domain) == (4, 4, False)
    assert describe(found) == "16 × H100-SXM + 8 × A100-40GB-SXM"


def test_the_summary_can_do_only_what_every_kind_can() -> None:
    found = cluster(part("A100-40GB", 8), part("RTX-4090", 8))  # the slower one has fp8, the other has not
    assert found.device.name == "RTX-4090"
    assert "fp8" not in found.device.peak_flops
    assert found.device.peak_flops["bf16"].value == 165.2e12
    assert found.device.peak_flops["fp32"].value == 19.5e12  # here the other kind is the slower one


def test_the_largest_node_shares_its_adapters_among_most() -> None:
    found = mixed((part("H100", 16), part("A100-40GB", 8, 4)), link("ib-hdr"), 4, 2.0, False)
    assert found.inter.bytes_per_s.value == 25e9 * 4 / 8 / 2
    assert (found.nics_per_node, found.oversubscription, found.rails) == (4, 2.0, False)


def test_pipeline_ranks_lie_on_their_blocks() -> None:
    found = cluster(part("H100", 16), part("A100-40GB", 8))
    names = [device_of(found, 3, rank).name for rank in range(3)]
    assert names == ["H100-SXM", "H100-SXM", "A100-40GB-SXM"]
    large, small = device("H100").memory_bytes, device("A100-40GB").memory_bytes
    assert memory_limits(found, 3) == (large, large, small)
    assert memory_limits(found, 2) == (large, small)  # ranks 12-15 are H100, 16-23 are not
    with pytest.raises(ValueError, match="pipeline rank 3 of 3"):
        device_of(found, 3, 3)


def test_a_plain_cluster_has_one_device_and_one_limit() -> None:
    found = device("H100")
    plain = Cluster(found, 8, 8, link("nvlink4"), link("nvlink4"), 7)
    assert device_of(plain, 4, 3) is found
    assert memory_limits(plain, 4) == (7, 7, 7, 7)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 12)), min_size=2, max_size=4), st.integers(1, 12))
def test_blocks_agree_with_a_count_rank_by_rank(kinds: list[tuple[str, int]], pp: int) -> None:
    found = cluster(*(part(name, gpus) for name, gpus in kinds))
    by_rank = [device(name) for name, gpus in kinds for _ in range(gpus)]
    if len(by_rank) % pp:
        return
    block = len(by_rank) // pp
    limits = memory_limits(found, pp)
    for rank in range(pp):
        members = by_rank[rank * block : (rank + 1) * block]
        assert device_of(found, pp, rank).name == slowest(members).name
        assert limits[rank] == min(member.memory_bytes for member in members)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=2, max_size=4), st.integers(1, 8))
def test_an_aligned_group_crosses_no_border(nodes: list[tuple[int, int]], size: int) -> None:
    found = cluster(*(part("A100", count * per_node, per_node) for count, per_node in nodes))
    if found.alignment % size:
        return
    node_of = [
        (kind, rank // per_node) for kind, (count, per_node) in enumerate(nodes) for rank in range(count * per_node)
    ]
    for first in range(0, len(node_of), size):
        assert len(set(node_of[first : first + size])) == 1


def test_an_enlarged_cluster_keeps_its_kinds() -> None:
    found = cluster(part("H100", 16), part("A100-40GB", 8)).enlarged(3)
    assert (found.gpus, [kind.gpus for kind in found.parts]) == (72, [48, 24])
    assert device_of(found, 3, 2).name == "A100-40GB-SXM"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 8)), min_size=1, max_size=4))
def test_every_rank_is_on_one_node_of_its_kind(kinds: list[tuple[int, int]]) -> None:
    found = cluster(*(part("H100", gpus, per_node) for gpus, per_node in kinds))
    nodes = found.node_ranks
    assert [rank for ranks in nodes for rank in ranks] == list(range(found.gpus))
    assert len(nodes) == found.nodes
    owner = [kind for kind, (gpus, _) in enumerate(kinds) for _ in range(gpus)]
    for ranks in nodes:
        (kind,) = {owner[rank] for rank in ranks}
        assert len(ranks) <= kinds[kind][1]
