"""One device and one link, each figure with its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshwright.basics.figures import Constant


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU (or one CPU worker): what it holds and how fast it computes."""

    name: str
    kind: Literal["gpu", "cpu"]
    memory_bytes: int
    peak_flops: Mapping[str, Constant]  # by dtype ("fp32", "bf16", ...): dense FLOP/s, never the sparse figure
    memory_bandwidth: Constant  # bytes/s
    launch_s: Constant  # host and launch cost of one kernel, seconds
    reserved_bytes: Constant  # context and allocator floor: memory the training job never gets
    nvlink: str | None = None  # the link its board has, by catalogue name
    watts: float | None = None
    pcie: str = "pcie4"  # the link of its slot
    usual_node: int = 8  # devices of a node when the job does not say


@dataclass(frozen=True, slots=True)
class Link:
    """A link as one device sees it: bytes a second in one direction, and the latency of one message.

    `name` is a name of the catalogue or of a machine file, or a rate ("25 GB/s"): what a job can write.
    """

    name: str
    bytes_per_s: Constant
    latency_s: Constant
    domain: int | None = None  # devices that it joins when it does not end at a node (a rack of NVLink switches)
