"""A cluster: how many devices, how many a node, and the links inside and between nodes."""

from dataclasses import dataclass

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
        return -(-self.gpus // self.gpus_per_node)

    @property
    def oversubscribed(self) -> bool:
        """True when more ranks than cores share this machine: wall time then hides imbalance."""
        return self.cores is not None and self.gpus > self.cores
