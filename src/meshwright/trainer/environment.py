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
from meshwright.cluster.machine import processor, usable_cores

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
        "cpu": processor()[0],
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


def total_memory() -> int | None:
    """Bytes of memory of the machine, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


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
