"""What a run ran on: machine, versions, and the settings that change how fast or how right it is. No secrets."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from meshwright import __version__

PACKAGES = ("torch", "numpy", "transformers", "tokenizers", "safetensors")
_PREFIXES = ("NCCL_", "GLOO_", "OMP_", "MKL_", "KMP_", "CUDA_", "PYTORCH_", "TORCH_", "ROCR_", "HIP_", "SLURM_JOB_NUM_")
_PRIVATE = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")


def environment(variables: Mapping[str, str], folder: Path) -> dict[str, object]:
    """Facts for `environment.json`. `variables` are the ranks' environment variables, of which only those that steer
    devices, threads and collectives are kept; `folder` is where the user works (for its git commit).
    """
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "meshwright": __version__,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_bytes": total_memory(),
        "gpus": list(gpu_names()),
        "variables": telling(variables),
        "git": git_state(folder),
    }


def package_version(name: str) -> str | None:
    """The installed version of a package, without importing it; None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def telling(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables worth recording; any whose name suggests a secret is left out."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(_PREFIXES) and not any(word in name.upper() for word in _PRIVATE)
    }


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int | None:
    """Bytes of memory of the machine, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that new processes can use now, within the limit of this container; None where the system does not say.

    `root` is where /proc and /sys are looked for.
    """
    found = [
        value for value in (_available(root / "proc/meminfo"), _group_left(root / "sys/fs/cgroup")) if value is not None
    ]
    return min(found, default=None)


def cpu_name() -> str:
    """The processor's model, as well as the system knows it."""
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_names() -> tuple[str, ...]:
    """One "name, memory, driver" for each NVIDIA GPU; empty without the driver's own tool."""
    query = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return tuple(_output("nvidia-smi", *query).splitlines())


def git_state(folder: Path) -> dict[str, object] | None:
    """The commit that `folder` stands at and whether tracked files were changed; None outside a git work tree."""
    commit = _output("git", "-C", str(folder), "rev-parse", "HEAD").strip()
    if not commit:
        return None
    changed = _output("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": bool(changed.strip())}


def _output(command: str, *arguments: str) -> str:
    path = shutil.which(command)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _available(file: Path) -> int | None:
    for line in _lines(file):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _group_left(folder: Path) -> int | None:
    """What a cgroup (version 2) still grants: its limit less what it holds, page cache aside."""
    limit, used = _lines(folder / "memory.max"), _lines(folder / "memory.current")
    if not limit or not used or not limit[0].strip().isdigit():
        return None
    cache = sum(int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith("inactive_file "))
    return max(0, int(limit[0]) - int(used[0]) + cache)
