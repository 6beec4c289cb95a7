"""This machine as a cluster of one node: its NVIDIA GPUs, or processes that share its cores."""

import math
from collections.abc import Callable
from pathlib import Path

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.figures import Constant
from meshwright.basics.quantities import GIB, MIB
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.device import Device
from meshwright.cluster.machine import VisibleGpu, available_memory, processor, usable_cores, visible_gpus
from meshwright.cluster.topology import Cluster

_MEASURE = "measure with `meshwright calibrate`"
_MOST_WORKERS = 4096
RANK_BYTES = 410 * MIB  # a worker before its model: interpreter, torch, buffers (measured: 380 to 430 MiB)
_USUAL_CLOCK_HZ = 3e9
_MOST_PCIE = 5


def available_devices() -> int:
    """Devices that this machine offers: its GPUs, or one worker a core."""
    return len(visible_gpus()) or usable_cores()


Lookup = Callable[[str], Device]
"""From the name that the driver gives a GPU to its figures; raises InputError for one that nobody knows."""


def local_cluster(gpus: int, memory_gib: float | None = None, lookup: Lookup = device) -> Cluster:
    """`gpus` devices of this machine: NVIDIA GPUs of the catalogue where the driver shows some, otherwise CPU workers.

    `memory_gib` is what one rank may use; None means the GPU's memory, or an equal share of the memory that is free
    now. Raises InputError for fewer than one device, more than there are GPUs, or GPUs that `lookup` lacks.
    """
    complaints = []
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= _MOST_WORKERS:
        complaints.append(Complaint("cluster.gpus", repr(gpus), "must be a number of devices", f"1 to {_MOST_WORKERS}"))
    if memory_gib is not None and not (math.isfinite(memory_gib) and memory_gib > 0):
        complaints.append(Complaint("cluster.memory_gib", f"{memory_gib:g}", "must be GiB above 0"))
    if complaints:
        raise InputError(tuple(complaints))
    wanted = None if memory_gib is None else round(memory_gib * GIB)
    found = visible_gpus()
    return gpu_cluster(found, gpus, wanted, lookup) if found else cpu_cluster(gpus, wanted)


def gpu_cluster(
    found: tuple[VisibleGpu, ...], gpus: int, memory_bytes: int | None = None, lookup: Lookup = device
) -> Cluster:
    """A cluster of `gpus` of the GPUs found, joined by NVLink where it is up, otherwise by PCIe. Raises InputError."""
    if gpus > len(found):
        raise bad_input("this machine has fewer GPUs", field="cluster.gpus", value=gpus, legal=f"1 to {len(found)}")
    names = sorted({gpu.name for gpu in found[:gpus]})
    if len(names) > 1:
        raise bad_input("the GPUs of this machine are of several kinds", field="cluster.gpu", value=", ".join(names))
    first = found[0]
    known = lookup(first.name)
    pcie = f"pcie{min(max(first.pcie or 4, 3), _MOST_PCIE)}"
    wire = link(known.nvlink if known.nvlink and first.nvlink else pcie)
    usable = min(known.memory_bytes, first.memory_bytes)
    return Cluster(known, gpus, gpus, wire, wire, usable if memory_bytes is None else memory_bytes, local=True)


def cpu_cluster(gpus: int, memory_bytes: int | None = None, root: Path = Path("/")) -> Cluster:
    """A cluster of `gpus` worker processes of one core's speed each, joined by loopback. All rates are guessed."""
    if memory_bytes is None:
        share = (available_memory(root) or 4 * GIB) // gpus
        memory_bytes = max(share - RANK_BYTES, share // 4)
    wire = link("loopback")
    worker = _worker(memory_bytes, root)
    return Cluster(worker, gpus, gpus, wire, wire, memory_bytes, local=True, cores=usable_cores())


def _worker(memory_bytes: int, root: Path) -> Device:
    name, flags, clock = processor(root)
    fp32 = (clock or _USUAL_CLOCK_HZ) * _fp32_flops_a_cycle(flags)
    rates = {"fp32": fp32, "bf16": fp32 * _bf16_gain(flags), "fp16": fp32 * (2 if "avx512_fp16" in flags else 0.5)}
    return Device(
        name=name,
        kind="cpu",
        memory_bytes=memory_bytes,
        peak_flops={dtype: Constant(rate, "guessed", f"one core, {_MEASURE}") for dtype, rate in rates.items()},
        memory_bandwidth=Constant(10e9, "guessed", f"one core, {_MEASURE}"),
        launch_s=Constant(2e-5, "guessed", f"one operator of PyTorch with its autograd node, {_MEASURE}"),
        reserved_bytes=Constant(0.0, "guessed", "a worker's limit counts tensors only"),
    )


def _fp32_flops_a_cycle(flags: frozenset[str]) -> int:
    """Two fused multiply-adds of eight lanes with AVX2 (what BLAS reaches on AVX-512 parts is often no more)."""
    return 32 if "avx2" in flags else 16


def _bf16_gain(flags: frozenset[str]) -> float:
    """Matrix products in bf16 against fp32; without instructions for it they are converted back and forth."""
    if "amx_bf16" in flags:
        return 16
    return 4 if "avx512_bf16" in flags else 0.5
