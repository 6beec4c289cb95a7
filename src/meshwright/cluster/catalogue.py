"""Devices and links by name, from the data files beside this module. Each figure carries its origin and source."""

import math
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.basics.errors import InputError, bad_input
from meshwright.basics.figures import Constant
from meshwright.basics.names import nearest
from meshwright.basics.quantities import GIB
from meshwright.cluster.device import Device, Link

_RATE = re.compile(r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(?:gb/s|gb|gbytes/s)?", re.IGNORECASE)
_SLOWEST_GB, _FASTEST_GB = 1e-3, 1e5
_UNKNOWN_LATENCY_S = 8e-6


def device(name: str, field: str = "cluster.gpu") -> Device:
    """The device of that name or alias; case, spaces, dashes and a leading "NVIDIA" or "AMD Instinct" do not matter.
    A name that leaves the memory size open means the smallest. Raises InputError naming the nearest known one."""
    table = _table("devices.toml")
    row_name = _find(name, table, field, "device")
    row, defaults = table[row_name], table["defaults"]
    sheet = row["source"]
    return Device(
        name=row_name,
        kind="gpu",
        memory_bytes=int(row["memory_gib"] * GIB),
        peak_flops={dtype: Constant(peak * 1e12, "data sheet", sheet) for dtype, peak in row["peak_tflops"].items()},
        memory_bandwidth=Constant(row["bandwidth_gb"] * 1e9, "data sheet", sheet),
        launch_s=Constant(defaults["launch_s"], "guessed", defaults["launch_source"]),
        reserved_bytes=Constant(defaults["reserved_gib"] * GIB, "guessed", defaults["reserved_source"]),
        nvlink=row.get("nvlink"),
        watts=row["tdp"],
    )


def link(name: str | float, field: str = "cluster.intra_node") -> Link:
    """The link of that name, or a rate: GB/s (10^9) in one direction for one device, as a number or "25 GB/s".
    Raises InputError for an unknown name (naming the nearest) and for a rate outside 0.001 to 100,000 GB/s."""
    rate = _rate(name)
    if rate is not None:
        return _stated(rate, field)
    table = _table("links.toml")
    row_name = _find(str(name), table, field, "link")
    row = table[row_name]
    return Link(
        name=row_name,
        bytes_per_s=Constant(row["gb_per_s"] * 1e9, row.get("origin", "data sheet"), row["source"]),
        latency_s=Constant(row["latency_us"] * 1e-6, "guessed", "usual order; measure with `meshwright calibrate`"),
    )


def device_names() -> tuple[str, ...]:
    """Names of all devices, in the order of the data file."""
    return tuple(name for name in _table("devices.toml") if name != "defaults")


def link_names() -> tuple[str, ...]:
    """Names of all links, in the order of the data file."""
    return tuple(_table("links.toml"))


def peak_flops(of: Device, dtype: str, field: str = "training.precision") -> Constant:
    """Dense FLOP/s of a device in one dtype. Raises InputError when the device has no units for it."""
    if dtype in of.peak_flops:
        return of.peak_flops[dtype]
    raise bad_input(
        f"{of.name} has no matrix units for {dtype}", field=field, value=repr(dtype), legal=", ".join(of.peak_flops)
    )


def _rate(name: str | float) -> float | None:
    """GB/s when `name` is a number or reads as one."""
    if isinstance(name, str):
        match = _RATE.fullmatch(name.strip())
        return float(match.group(1)) if match else None
    return math.nan if isinstance(name, bool) else float(name)


def _stated(gb_per_s: float, field: str) -> Link:
    if not _SLOWEST_GB <= gb_per_s <= _FASTEST_GB:
        raise bad_input(
            "must be GB/s in one direction for one device", field=field, value=f"{gb_per_s:g}",
            legal=f"{_SLOWEST_GB:g} to {_FASTEST_GB:g}, or a name such as nvlink3",
        )  # fmt: skip
    rate = Constant(gb_per_s * 1e9, "data sheet", "stated in the job")
    return Link(f"{gb_per_s:g} GB/s", rate, Constant(_UNKNOWN_LATENCY_S, "guessed", "usual order for a network"))


def _find(name: str, table: dict[str, Any], field: str, what: str) -> str:
    known = {alias: row for row in table for alias in (row, *table[row].get("aliases", ())) if row != "defaults"}
    wanted = _plain(name)
    for alias, row in known.items():
        if _plain(alias) == wanted:
            return row
    raise _unknown(name, known, field, what)


def _unknown(name: str, known: dict[str, str], field: str, what: str) -> InputError:
    near = nearest(name, known)
    rows = ", ".join(dict.fromkeys(known.values()))
    legal = f"did you mean {known[near]!r}? known: {rows}" if near else f"known: {rows}"
    return bad_input(f"unknown {what}", field=field, value=repr(name), legal=legal)


def _plain(name: str) -> str:
    without_vendor = re.sub(r"^(nvidia|amd instinct|amd|instinct)\s+", "", name.strip().lower())
    return re.sub(r"[^a-z0-9]", "", without_vendor)


@lru_cache(maxsize=2)
def _table(file: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
