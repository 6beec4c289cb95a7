"""A cluster: how many devices, how many a node, and the links inside and between nodes."""

from dataclasses import dataclass, replace
from itertools import accumulate
from math import gcd

from meshwright.cluster.device import Device, Link


@dataclass(frozen=True, slots=True)
class Part:
    """Devices of one kind in a mixed cluster: `gpus` of them in nodes of `gpus_per_node`, joined by `intra` inside."""

    device: Device
    gpus: int
    gpus_per_node: int
    intra: Link
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """`gpus` devices in nodes of `gpus_per_node`, joined by `intra` inside a node and `inter` between nodes.

    `memory_bytes` is what one rank may use (the device's memory unless the job overrides it).
    `cores` is set when the devices are workers that share this machine's CPU cores.
    `inter` is what one device gets when all of its node send at once: network adapters shared by several devices and
    an oversubscribed fabric are already counted in it.
    In a mixed cluster `parts` lists its kinds in the order of the ranks; `device`, `gpus_per_node`, `intra` and
    `memory_bytes` are then those of the slowest kind, the smallest node, the slowest link and the least memory: what a
    group that lies anywhere can count on. Which kind a pipeline rank lies on: `cluster/mixed.py`.
    """

    device: Device
    gpus: int
    gpus_per_node: int
    intra: Link
    inter: Link
    memory_bytes: int
    local: bool = False  # the devices are this machine's
    cores: int | None = None
    parts: tuple[Part, ...] = ()  # kinds of device of a mixed cluster, in the order of the ranks; empty: all alike
    nics_per_node: int | None = None  # network adapters; None: one a device
    oversubscription: float = 1.0  # of the fabric above the nodes: 2 means half of the rate when all send
    rails: bool = True  # adapter i of every node hangs on switch i: same-numbered devices meet without crossing

    @property
    def nodes(self) -> int:
        """Whole nodes, rounded up."""
        if self.parts:
            return sum(-(-part.gpus // part.gpus_per_node) for part in self.parts)
        return -(-self.gpus // self.gpus_per_node)

    @property
    def node_ranks(self) -> tuple[range, ...]:
        """The ranks on each node, in order; the last node of a kind may hold fewer."""
        kinds = [(part.gpus, part.gpus_per_node) for part in self.parts] or [(self.gpus, self.gpus_per_node)]
        found: list[range] = []
        first = 0
        for gpus, per_node in kinds:
            found += [range(at, min(at + per_node, first + gpus)) for at in range(first, first + gpus, per_node)]
            first += gpus
        return tuple(found)

    @property
    def joined(self) -> int:
        """Devices that `intra` joins: those of a node, or of an NVLink domain of several nodes; in a mixed cluster the
        fewest of any kind."""
        if self.parts:
            return min(_reach(part.gpus, part.gpus_per_node, part.intra) for part in self.parts)
        return _reach(self.gpus, self.gpus_per_node, self.intra)

    @property
    def alignment(self) -> int:
        """The spacing of the borders between nodes (or NVLink domains): a group of ranks whose span divides it crosses
        none of them."""
        if not self.parts:
            return self.joined
        offsets = accumulate(part.gpus for part in self.parts[:-1])
        return gcd(*offsets, *(_reach(part.gpus, part.gpus_per_node, part.intra) for part in self.parts))

    @property
    def one_domain(self) -> bool:
        """True when `intra` joins every device, so that nothing ever crosses `inter`."""
        return len(self.parts) < 2 and self.gpus <= self.joined

    def enlarged(self, times: int) -> "Cluster":
        """The same cluster with that many times the devices, each kind of a mixed one alike."""
        parts = tuple(replace(part, gpus=part.gpus * times) for part in self.parts)
        return replace(self, gpus=self.gpus * times, parts=parts)

    @property
    def oversubscribed(self) -> bool:
        """True when more ranks than cores share this machine: wall time then hides imbalance."""
        return self.cores is not None and self.gpus > self.cores


def _reach(gpus: int, gpus_per_node: int, intra: Link) -> int:
    """Devices that `intra` joins. A job larger than a domain gets equal shares of several, in whole nodes (64 of 72)
    where that leaves few idle, because schedulers place it so."""
    domain = intra.domain or 0
    if domain <= gpus_per_node:
        return gpus_per_node
    if gpus <= domain:
        return domain
    shares = (size for size in range(domain, domain // 2, -1) if gpus % size == 0 and size % gpus_per_node == 0)
    return next(shares, domain)
