"""Mixed clusters: devices of several kinds, in the order of the ranks; which of them a pipeline rank lies on.

Pipeline ranks are contiguous blocks of gpus / pp ranks, because pp is the outermost axis. All of a block run in step,
so the slowest of its devices sets its pace and the smallest memory its limit.
"""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.cluster.device import Device, Link
from meshwright.cluster.network import one_devices_share
from meshwright.cluster.topology import Cluster, Part

_TRAINING_DTYPES = ("bf16", "fp16", "fp32")  # every device has the last


def mixed(
    parts: Sequence[Part], inter: Link, nics_per_node: int | None, oversubscription: float, rails: bool
) -> Cluster:
    """The cluster of these parts. Its summary is what a group that lies anywhere can count on: the slowest device, the
    smallest node, the slowest link, the least memory, and the largest node's share of the network."""
    largest = max(part.gpus_per_node for part in parts)
    return Cluster(
        device=common_device([part.device for part in parts]),
        gpus=sum(part.gpus for part in parts),
        gpus_per_node=min(part.gpus_per_node for part in parts),
        intra=min((part.intra for part in parts), key=lambda link: link.bytes_per_s.value),
        inter=one_devices_share(inter, largest, nics_per_node, oversubscription),
        memory_bytes=min(part.memory_bytes for part in parts),
        parts=tuple(parts),
        nics_per_node=nics_per_node,
        oversubscription=oversubscription,
        rails=rails,
    )


def common_device(devices: Sequence[Device]) -> Device:
    """The slowest device with what all of them can do: only the dtypes that every kind has, each at its lowest peak."""
    shared = {
        dtype: min((device.peak_flops[dtype] for device in devices), key=lambda peak: peak.value)
        for dtype in devices[0].peak_flops
        if all(dtype in device.peak_flops for device in devices)
    }
    return replace(slowest(devices), peak_flops=shared)


def slowest(devices: Sequence[Device]) -> Device:
    """The device with the lowest dense peak (half precision, else fp32); of equals the one with the slower memory."""
    return min(devices, key=lambda device: (_pace(device), device.memory_bandwidth.value))


def _pace(device: Device) -> float:
    return next((device.peak_flops[dtype].value for dtype in _TRAINING_DTYPES if dtype in device.peak_flops), 0.0)


def device_of(cluster: Cluster, pp: int, pipeline_rank: int) -> Device:
    """The slowest device of a pipeline rank's block."""
    if not cluster.parts:
        return cluster.device
    return slowest([part.device for part in _block(cluster, pp, pipeline_rank)])


def memory_limits(cluster: Cluster, pp: int) -> tuple[int, ...]:
    """Bytes that a rank may use, by pipeline rank: the least of its block."""
    if not cluster.parts:
        return (cluster.memory_bytes,) * pp
    return tuple(min(part.memory_bytes for part in _block(cluster, pp, rank)) for rank in range(pp))


def _block(cluster: Cluster, pp: int, pipeline_rank: int) -> tuple[Part, ...]:
    """The parts on which the ranks of one pipeline rank lie."""
    if not 0 <= pipeline_rank < pp:
        raise ValueError(f"pipeline rank {pipeline_rank} of {pp}")
    first, beyond = pipeline_rank * cluster.gpus // pp, -(-(pipeline_rank + 1) * cluster.gpus // pp)
    found, start = [], 0
    for part in cluster.parts:
        if start < max(beyond, first + 1) and first < start + part.gpus:
            found.append(part)
        start += part.gpus
    return tuple(found)


def describe(cluster: Cluster) -> str:
    """`16 × A100-40GB-SXM + 8 × V100-16GB-SXM`, in the order of the ranks."""
    kinds = [(part.gpus, part.device.name) for part in cluster.parts] or [(cluster.gpus, cluster.device.name)]
    return " + ".join(f"{count} × {name}" for count, name in kinds)
