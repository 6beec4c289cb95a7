"""A cluster: how many devices, how many a node, and the links inside and between nodes."""

from dataclasses import dataclass

from meshwright.cluster.device import Device, Link


@dataclass(frozen=True, slots=True)
class Cluster:
    """`gpus` devices in nodes of `gpus_per_node`, joined by `intra` inside a node and `inter` between nodes.

    `memory_bytes` is what one rank may use (the device's memory unless the job overrides it).
    `cores` is set when the devices are workers that share this machine's CPU cores.
    """

    device: Device
    gpus: int
    gpus_per_node: int
    intra: Link
    inter: Link
    memory_bytes: int
    local: bool = False  # the devices are this machine's
    cores: int | None = None

    @property
    def nodes(self) -> int:
        """Whole nodes, rounded up."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def oversubscribed(self) -> bool:
        """True when more ranks than cores share this machine: wall time then hides imbalance."""
        return self.cores is not None and self.gpus > self.cores
