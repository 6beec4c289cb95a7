"""This machine as a cluster, and machines described by stand-ins for the driver and /proc."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB, MIB
from meshwright.cluster.local import available_devices, cpu_cluster, gpu_cluster, local_cluster
from meshwright.cluster.machine import VisibleGpu, available_memory, processor, usable_cores, visible_gpus

A100 = VisibleGpu("NVIDIA A100-SXM4-40GB", 40960 * MIB, nvlink=True, pcie=4)


def machine(root: Path, *, available_kib: int, limit: str = "max", used: int = 0, flags: str = "fma avx2") -> Path:
    """A folder with the files of /proc and /sys that are asked."""
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n")
    (root / "proc/cpuinfo").write_text(
        f"model name\t: Fast CPU\ncpu MHz\t\t: 2500.0\nflags\t\t: {flags}\n\nmodel name\t: Other\n"
    )
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 1048576\n")
    return root


class Driver:
    """Stands in for pynvml: a machine with the given GPUs."""

    class NVMLError(Exception):
        pass

    def __init__(self, names: list[str | bytes], links: bool = True, broken: bool = False) -> None:
        self.names, self.links, self.broken, self.open = names, links, broken, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return self.names[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=40960 * MIB)

    def nvmlDeviceGetNvLinkState(self, handle: int, which: int) -> int:  # noqa: N802
        if not self.links:
            raise self.NVMLError
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 4


def test_gpus_as_the_driver_shows_them() -> None:
    driver = Driver([b"NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"])
    assert visible_gpus(driver, {}) == (A100, A100)
    assert driver.open == 0
    assert not visible_gpus(Driver(["NVIDIA A100-SXM4-40GB"], links=False), {})[0].nvlink
    assert visible_gpus(Driver([], broken=True), {}) == ()


@pytest.mark.parametrize(("chosen", "count"), [("0", 1), ("2,0", 2), ("", 0), ("-1", 0), ("1,9,0", 1), ("0, 1,2", 3)])
def test_only_gpus_that_the_process_may_see(chosen: str, count: int) -> None:
    assert len(visible_gpus(Driver(["GPU"] * 3), {"CUDA_VISIBLE_DEVICES": chosen})) == count


def test_gpus_become_devices_of_the_catalogue() -> None:
    cluster = gpu_cluster((A100,) * 8, 4)
    assert (cluster.device.name, cluster.gpus, cluster.gpus_per_node, cluster.nodes) == ("A100-40GB-SXM", 4, 4, 1)
    assert cluster.intra.name == "nvlink3"
    assert cluster.memory_bytes == cluster.device.memory_bytes < 40 * GIB
    assert cluster.local
    assert not cluster.oversubscribed
    assert gpu_cluster((VisibleGpu("NVIDIA L40S", 46068 * MIB, False, 5),), 1).intra.name == "pcie5"


def test_gpus_that_are_not_there_or_not_known_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 2"):
        gpu_cluster((A100,) * 2, 3)
    with pytest.raises(InputError, match="several kinds"):
        gpu_cluster((A100, VisibleGpu("NVIDIA L40S", GIB, False, 4)), 2)
    with pytest.raises(InputError, match="unknown device"):
        gpu_cluster((VisibleGpu("NVIDIA GeForce GTX 480", GIB, False, 2),), 1)


def test_workers_share_free_memory_and_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, available_kib=16 * 1024 * 1024, flags="avx2 avx512_bf16")
    cluster = cpu_cluster(4, root=root)
    assert cluster.memory_bytes == 4 * GIB - 410 * MIB
    assert (cluster.device.kind, cluster.device.name, cluster.intra.name) == ("cpu", "Fast CPU", "loopback")
    assert cluster.device.peak_flops["fp32"].value == 2.5e9 * 32
    assert cluster.device.peak_flops["bf16"].value == 4 * 2.5e9 * 32
    assert {peak.origin for peak in cluster.device.peak_flops.values()} == {"guessed"}
    assert cluster.cores == usable_cores()
    assert cpu_cluster(cluster.cores + 1, root=root).oversubscribed
    assert cpu_cluster(4000, root=root).memory_bytes > 0


def test_a_container_limit_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, available_kib=16 * 1024 * 1024, limit=str(3 * GIB), used=2 * GIB)
    assert available_memory(root) == GIB + MIB


def test_systems_that_say_nothing(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    assert processor(tmp_path)[1:] == (frozenset(), None)
    assert cpu_cluster(2, root=tmp_path).memory_bytes > 0


def test_this_machine_without_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cluster = local_cluster(1, memory_gib=0.5)
    assert cluster.memory_bytes == GIB // 2
    assert cluster.local
    assert available_devices() >= 1
    assert local_cluster(1).memory_bytes > 0


@pytest.mark.parametrize(
    ("gpus", "memory"), [(0, None), (-1, None), (10**9, None), (True, None), (1, -2.0), (1, float("nan"))]
)
def test_nonsense_is_refused(gpus: int, memory: float | None) -> None:
    with pytest.raises(InputError):
        local_cluster(gpus, memory)
