"""Seconds of the collectives: latency and bandwidth, inside a node and between nodes.

Model: alpha-beta (Hockney 1994) with ring and tree algorithms (Thakur et al. 2005); a group that spans nodes works
hierarchically: inside each node over the fast link, and between nodes with every member carrying its own share over
its own lane of the network. The faster algorithm is taken, so a faster link or a lower latency never costs time.

`n_bytes` is always the whole buffer: what each rank holds before an all-reduce or a reduce-scatter, and after an
all-gather; for all-to-all and p2p what one rank sends. `spans_nodes` is how many nodes the group lies on.
"""

from math import ceil, log2

from meshwright.cluster.topology import Cluster
from meshwright.predictor.constants import COLLECTIVE_EFFICIENCY, COLLECTIVE_LAUNCH_S


def _intra(cluster: Cluster) -> tuple[float, float]:
    """Bytes/s and latency inside a node."""
    link = cluster.intra
    return link.bytes_per_s.value * COLLECTIVE_EFFICIENCY["intra"].value, link.latency_s.value


def _inter(cluster: Cluster) -> tuple[float, float]:
    """Bytes/s and latency between nodes, one device's lane."""
    link = cluster.inter
    return link.bytes_per_s.value * COLLECTIVE_EFFICIENCY["inter"].value, link.latency_s.value


def _one_way(n_bytes: float, ranks: int, rate: float, latency: float) -> float:
    """Half an all-reduce (a reduce-scatter or an all-gather) on one level: a ring, or a tree of halvings."""
    if ranks <= 1:
        return 0.0
    moved = n_bytes * (ranks - 1) / ranks / rate
    return moved + latency * min(ranks - 1, ceil(log2(ranks)) * 2)


def _levels(group_size: int, spans_nodes: int) -> tuple[int, int]:
    """Members a node and nodes; a group that spans nodes unevenly counts its fullest node."""
    nodes = max(1, min(spans_nodes, group_size))
    return ceil(group_size / nodes), nodes


def _half(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int) -> float:
    """Reduce-scatter or all-gather over both levels, launch excluded."""
    local, nodes = _levels(group_size, spans_nodes)
    inside = _one_way(n_bytes, local, *_intra(cluster))
    return inside + _one_way(n_bytes / local, nodes, *_inter(cluster))


def allreduce_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1) -> float:
    """Seconds to sum `n_bytes` over the group, result everywhere: a reduce-scatter and an all-gather."""
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    return COLLECTIVE_LAUNCH_S.value + 2 * _half(cluster, n_bytes, group_size, spans_nodes)


def allgather_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1) -> float:
    """Seconds until every rank holds all `n_bytes`, of which it had one share."""
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    return COLLECTIVE_LAUNCH_S.value + _half(cluster, n_bytes, group_size, spans_nodes)


def reducescatter_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1) -> float:
    """Seconds until each rank holds the sum of its share of `n_bytes`."""
    return allgather_s(cluster, n_bytes, group_size, spans_nodes)


def p2p_s(cluster: Cluster, n_bytes: float, spans_nodes: int = 1) -> float:
    """Seconds to send `n_bytes` from one rank to another; between nodes when `spans_nodes` is 2 or more."""
    if n_bytes <= 0:
        return 0.0
    rate, latency = _inter(cluster) if spans_nodes > 1 else _intra(cluster)
    return COLLECTIVE_LAUNCH_S.value + latency + n_bytes / rate


def alltoall_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1) -> float:
    """Seconds to send a different share of `n_bytes` to each rank; both levels work at the same time."""
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    local, nodes = _levels(group_size, spans_nodes)
    intra_rate, intra_latency = _intra(cluster)
    inside = n_bytes * (local - 1) / group_size / intra_rate + intra_latency * ceil(log2(max(local, 2)))
    if nodes == 1:
        return COLLECTIVE_LAUNCH_S.value + inside
    inter_rate, inter_latency = _inter(cluster)
    outside = n_bytes * (group_size - local) / group_size / inter_rate + inter_latency * ceil(log2(nodes))
    return COLLECTIVE_LAUNCH_S.value + max(inside, outside)
