"""Where the ranks of each axis lie. Ranks are numbered with tp innermost, then cp, dp and pp outermost."""

from dataclasses import dataclass
from typing import Protocol

from meshwright.cluster.topology import Cluster
from meshwright.layout.degrees import Degrees as NamedDegrees


class Degrees(NamedDegrees, Protocol):
    """The degrees that decide where ranks lie, as a complete `Layout` has them."""

    @property
    def etp(self) -> int: ...
    @property
    def shard_group(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Group:
    """One communication group: how many ranks, and on how many nodes it lies. A node here is what the fast link joins:
    a machine, or an NVLink domain of several (72 GPUs of a rack)."""

    size: int
    nodes: int


def group(cluster: Cluster, size: int, stride: int) -> Group:
    """A group of `size` ranks whose numbers are `stride` apart; of several groups that lie differently the one on the
    most nodes, because everyone waits for it. In a mixed cluster every node counts as the smallest."""
    a_node = max(1, min(size, cluster.joined // stride))
    nodes = -(-size // a_node)
    straddles = nodes == 1 < size and not cluster.one_domain and cluster.alignment % (size * stride) != 0
    return Group(size, 2 if straddles else nodes)


def tensor_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that share each matrix."""
    return group(cluster, degrees.tp, 1)


def context_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that share each sequence."""
    return group(cluster, degrees.cp, degrees.tp)


def gradient_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that average the gradients of dense tensors: all of dp and cp."""
    return group(cluster, degrees.dp * degrees.cp, degrees.tp)


def shard_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that share one set of ZeRO shards: the gradient group, or the first `shard_group` of it (HSDP)."""
    whole = degrees.dp * degrees.cp
    return group(cluster, min(degrees.shard_group or whole, whole), degrees.tp)


def replica_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that hold the same shard (HSDP); one rank without it."""
    shards = shard_group(cluster, degrees).size
    return group(cluster, degrees.dp * degrees.cp // shards, degrees.tp * shards)


def expert_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks among which experts are spread."""
    return group(cluster, degrees.ep, degrees.etp)


def expert_gradient_group(cluster: Cluster, degrees: Degrees) -> Group:
    """The ranks that hold the same experts and average their gradients."""
    copies = max(1, degrees.dp * degrees.cp * degrees.tp // (degrees.ep * degrees.etp))
    return group(cluster, copies, degrees.ep * degrees.etp)


def hop_nodes(cluster: Cluster, degrees: Degrees) -> int:
    """2 when neighbours of a pipeline lie on different nodes (the slowest hop decides), else 1."""
    stride = degrees.dp * degrees.tp * degrees.cp
    stages = cluster.gpus // stride
    if cluster.parts:
        return 2 if stages > 1 else 1
    crosses = any(
        rank * stride // cluster.joined != (rank + 1) * stride // cluster.joined for rank in range(stages - 1)
    )
    return 2 if crosses else 1
