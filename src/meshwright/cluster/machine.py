"""What this machine has: cores, memory, processor and NVIDIA GPUs, asked without importing torch."""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class VisibleGpu:
    """A GPU as the driver describes it. `pcie` is the generation of its slot or board, whichever is lower."""

    name: str
    memory_bytes: int
    nvlink: bool  # at least one link is up
    pcie: int | None


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that new processes can use now, within the limit of this container (cgroup version 2); None where the
    system does not say. `root` is where /proc and /sys are looked for."""
    meminfo = _fields(root / "proc/meminfo").get("MemAvailable", "").split()
    found = [int(meminfo[0]) * 1024] if meminfo and meminfo[0].isdigit() else []
    group = root / "sys/fs/cgroup"
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        counts = dict(line.split() for line in _text(group / "memory.stat").splitlines() if len(line.split()) == 2)
        reclaimable = int(counts.get("inactive_file", 0))  # page cache that gives way
        found.append(max(0, int(limit) - int(used) + reclaimable))
    return min(found, default=None)


def processor(root: Path = Path("/")) -> tuple[str, frozenset[str], float | None]:
    """Name of the processor, its instruction-set flags, and its clock in Hz where the system says."""
    fields = _fields(root / "proc/cpuinfo")
    name = fields.get("model name") or platform.processor() or platform.machine() or "CPU"
    flags = frozenset((fields.get("flags") or fields.get("Features") or "").split())
    try:
        clock = float(fields.get("cpu MHz", "")) * 1e6
    except ValueError:
        clock = 0.0
    return name, flags, clock or None


def visible_gpus(nvml: Any = None, variables: Mapping[str, str] | None = None) -> tuple[VisibleGpu, ...]:
    """NVIDIA GPUs that a process started here would see, through the driver's library (package nvidia-ml-py); none
    without the package or the driver. `nvml` stands in for the package, `variables` for the environment."""
    if nvml is None:
        try:
            import pynvml as nvml  # type: ignore[import-untyped, no-redef, unused-ignore]
        except ImportError:
            return ()
    chosen = (os.environ if variables is None else variables).get("CUDA_VISIBLE_DEVICES")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(nvml, handle) for handle in _handles(nvml, chosen))
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any, chosen: str | None) -> Iterator[Any]:
    """Handles in the order of CUDA_VISIBLE_DEVICES; as CUDA does, the first entry that names no GPU ends the list."""
    count = nvml.nvmlDeviceGetCount()
    if chosen is None:
        yield from (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count))
        return
    for entry in (part.strip() for part in chosen.split(",")):
        if entry.isdigit() and int(entry) < count:
            yield nvml.nvmlDeviceGetHandleByIndex(int(entry))
        elif entry.startswith("GPU-"):
            yield nvml.nvmlDeviceGetHandleByUUID(entry)
        else:
            return


def _gpu(nvml: Any, handle: Any) -> VisibleGpu:
    name = nvml.nvmlDeviceGetName(handle)
    return VisibleGpu(
        name=name.decode() if isinstance(name, bytes) else name,
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        nvlink=bool(_or_none(nvml, nvml.nvmlDeviceGetNvLinkState, handle, 0)),
        pcie=_or_none(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
    )


def _or_none(nvml: Any, ask: Any, *about: Any) -> Any:
    """The answer, or None where the device does not support the question."""
    try:
        return ask(*about)
    except nvml.NVMLError:
        return None


def _fields(file: Path) -> dict[str, str]:
    """The "name: value" lines of a file of /proc; of a name that repeats (a core each) the first."""
    fields: dict[str, str] = {}
    for line in _text(file).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
