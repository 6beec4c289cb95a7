"""Seconds of the collectives: latency and bandwidth, inside a node and between nodes.

Model: alpha-beta (Hockney 1994) with ring and tree algorithms (Thakur et al. 2005). A group that spans nodes runs rings
through all of them, one for each lane of the network: every lane carries its part of the whole buffer, and the links
inside the nodes work at the same time. Medium messages do not fill the pipes (`ramp`). A faster link or a lower latency
never costs time.

`n_bytes` is always the whole buffer: what each rank holds before an all-reduce or a reduce-scatter, and after an
all-gather; for all-to-all and p2p what one rank sends. `spans_nodes` is how many nodes the group lies on.
"""

from math import ceil, log2

from meshwright.cluster.topology import Cluster
from meshwright.predictor.constants import (
    COLLECTIVE_EFFICIENCY,
    COLLECTIVE_LAUNCH_S,
    RAMP,
    RAMP_BYTES,
)


def _intra(cluster: Cluster) -> tuple[float, float]:
    """Bytes/s and latency inside a node."""
    link = cluster.intra
    return link.bytes_per_s.value * COLLECTIVE_EFFICIENCY["intra"].value, link.latency_s.value


def _inter(cluster: Cluster) -> tuple[float, float]:
    """Bytes/s and latency between nodes, one device's lane."""
    link = cluster.inter
    return link.bytes_per_s.value * COLLECTIVE_EFFICIENCY["inter"].value, link.latency_s.value


def _levels(group_size: int, spans_nodes: int) -> tuple[int, int]:
    """Members a node and nodes; a group that spans nodes unevenly counts its fullest node."""
    nodes = max(1, min(spans_nodes, group_size))
    return ceil(group_size / nodes), nodes


def _steps(ranks: int, latency: float) -> float:
    """Latencies of a ring, or of a tree where that is shorter."""
    return latency * min(ranks - 1, ceil(log2(ranks)) * 2) if ranks > 1 else 0.0


def _half(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int, linear: bool) -> float:
    """Reduce-scatter or all-gather over both levels, launch excluded."""
    local, nodes = _levels(group_size, spans_nodes)
    rate, latency = _intra(cluster)
    waits = _steps(local, latency)
    moved = n_bytes * (group_size - 1) / group_size / rate if local > 1 else 0.0
    if nodes > 1:
        rate, latency = _inter(cluster)
        moved = max(moved, n_bytes / local * (group_size - 1) / group_size / rate)
        waits += _steps(nodes, latency)
    if not linear:
        moved *= 1 + RAMP["inter" if nodes > 1 else "intra"].value / (1 + n_bytes / RAMP_BYTES.value)
    return waits + moved


def allreduce_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1, linear: bool = False) -> float:
    """Seconds to sum `n_bytes` over the group, result everywhere: a reduce-scatter and an all-gather. `linear`: a lower
    bound that is linear in the bytes."""
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    return COLLECTIVE_LAUNCH_S.value + 2 * _half(cluster, n_bytes, group_size, spans_nodes, linear)


def allgather_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1, linear: bool = False) -> float:
    """Seconds until every rank holds all `n_bytes`, of which it had one share."""
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    return COLLECTIVE_LAUNCH_S.value + _half(cluster, n_bytes, group_size, spans_nodes, linear)


def reducescatter_s(
    cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1, linear: bool = False
) -> float:
    """Seconds until each rank holds the sum of its share of `n_bytes`."""
    return allgather_s(cluster, n_bytes, group_size, spans_nodes, linear)


def p2p_s(cluster: Cluster, n_bytes: float, spans_nodes: int = 1) -> float:
    """Seconds to send `n_bytes` from one rank to another; between nodes when `spans_nodes` is 2 or more."""
    if n_bytes <= 0:
        return 0.0
    rate, latency = _inter(cluster) if spans_nodes > 1 else _intra(cluster)
    return COLLECTIVE_LAUNCH_S.value + latency + n_bytes / rate


def alltoall_s(cluster: Cluster, n_bytes: float, group_size: int, spans_nodes: int = 1, copies: int = 1) -> float:
    """Seconds to send a different share of `n_bytes` to each rank; both levels work at the same time.

    `copies` above 1: every piece goes to so many ranks, and dispatchers that know nodes (DeepEP) send it to each node
    once, where the fast link spreads it.
    """
    if group_size <= 1 or n_bytes <= 0:
        return 0.0
    local, nodes = _levels(group_size, spans_nodes)
    link = cluster.intra
    rate = link.bytes_per_s.value * COLLECTIVE_EFFICIENCY["all-to-all"].value
    waits = link.latency_s.value * ceil(log2(max(local, 2)))
    if nodes == 1:
        return COLLECTIVE_LAUNCH_S.value + n_bytes * (local - 1) / local / rate + waits
    inter_rate, inter_latency = _inter(cluster)
    apart = 1 - 1 / nodes  # of the pieces go to other nodes
    if copies > 1:
        inside = n_bytes * (local - 1) / local / rate
        apart = apart * min(1.0, nodes * (1 - (1 - 1 / nodes) ** copies) / copies)
    else:
        inside = n_bytes * (local - 1) / group_size / rate
    outside = n_bytes * apart / inter_rate + inter_latency * ceil(log2(nodes))
    return COLLECTIVE_LAUNCH_S.value + max(inside + waits, outside)
