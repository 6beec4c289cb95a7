"""Devices and links by name, from the data files beside this module. Each figure carries its origin and source."""

import math
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.basics.figures import Constant
from meshwright.basics.quantities import GIB
from meshwright.cluster.device import Device, Link
from meshwright.cluster.names import find, plain, spellings

_RATE = re.compile(r"(?P<number>[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>g[A-Za-z/]*)?", re.IGNORECASE)
_BYTES = ("GB/s", "GB", "GBps", "GBytes/s", "GByte/s")
_BITS = ("Gb/s", "Gb", "Gbps", "gbps", "Gbit/s", "Gbits/s", "Gbit", "gbit/s", "gbit")
_SLOWEST_GB, _FASTEST_GB = 1e-3, 1e5
_UNKNOWN_LATENCY_S = 8e-6
_BOARDS_OWN = ("nvlink", "nvswitch", "infinityfabric", "xgmi", "pcie")
STATED = "stated in the job"


def device(name: str, field: str = "cluster.gpu") -> Device:
    """The device of that name or alias; case, spaces, dashes and a leading "NVIDIA" or "AMD Instinct" do not matter.
    A name that leaves the memory size open means the smallest. Raises InputError naming the nearest known one."""
    table = _table("devices.toml")
    row_name = find(name, table, field, "device")
    row, sheet = table[row_name], table[row_name]["source"]
    listed = unlisted(
        row_name,
        int(row["memory_gib"] * GIB),
        {dtype: Constant(peak * 1e12, "data sheet", sheet) for dtype, peak in row["peak_tflops"].items()},
        Constant(row["bandwidth_gb"] * 1e9, "data sheet", sheet),
    )
    board = {key: row[key] for key in ("nvlink", "pcie") if key in row}
    return _with_board(listed, board, row["tdp"], row.get("gpus_per_node", listed.usual_node))


def _with_board(of: Device, board: Mapping[str, str], watts: float, node: int) -> Device:
    return Device(
        of.name, of.kind, of.memory_bytes, of.peak_flops, of.memory_bandwidth, of.launch_s, of.reserved_bytes,
        **board, watts=watts, usual_node=node,
    )  # fmt: skip


def unlisted(name: str, memory_bytes: int, peak_flops: Mapping[str, Constant], bandwidth: Constant) -> Device:
    """A GPU of these figures (bytes, FLOP/s by dtype, bytes/s); what a kernel and the context cost is as usual."""
    usual = _table("devices.toml")["defaults"]
    return Device(
        name=name,
        kind="gpu",
        memory_bytes=memory_bytes,
        peak_flops=peak_flops,
        memory_bandwidth=bandwidth,
        launch_s=Constant(usual["launch_s"], "guessed", usual["launch_source"]),
        reserved_bytes=Constant(usual["reserved_gib"] * GIB, "guessed", usual["reserved_source"]),
    )


def link(name: str | float, field: str = "cluster.intra_node") -> Link:
    """The link of that name, or a rate in one direction for one device: GB/s (10^9 bytes) as a number, "25 GB/s", or
    bits as in "200 Gb/s". Raises InputError for an unknown name (naming the nearest), for a rate outside 0.001 to
    100,000 GB/s, and for "gb/s", which could be either."""
    rate = rate_of(name, field)
    if rate is not None:
        return stated_link(rate, field)
    table = _table("links.toml")
    row_name = find(str(name), table, field, "link")
    row = table[row_name]
    return Link(
        name=row_name,
        bytes_per_s=Constant(row["gb_per_s"] * 1e9, row.get("origin", "data sheet"), row["source"]),
        latency_s=Constant(row["latency_us"] * 1e-6, "guessed", "usual order; measure with `meshwright calibrate`"),
        domain=row.get("domain"),
    )


def board_link(of: Device, written: str | float | None, field: str = "cluster.intra_node") -> Link:
    """The link between the devices of a node: what is written, and where nothing or only the kind is ("NVLink",
    "Infinity Fabric"), what the device's board has. Raises InputError as `link`."""
    if written is None:
        return link(of.nvlink or of.pcie)
    kind = board_kind(written)
    if kind is None:
        return link(written, field)
    own = of.pcie if kind == "pcie" else of.nvlink
    fits = own is not None and plain(own).startswith("nvlink" if kind == "nvswitch" else plain(kind)[:8])
    if own is None or not (fits or kind == "xgmi"):
        board = f"{of.name} has {of.nvlink or of.pcie}"
        raise bad_input("is not on this board", field=field, value=repr(written), legal=board)
    return link(own, field)


def board_kind(written: str | float) -> str | None:
    """The kind of link when only that is written ("NVLink", "Infinity Fabric"): which one is the board's affair."""
    return next((kind for text in spellings(str(written)) for kind in _BOARDS_OWN if plain(text) == kind), None)


def device_names() -> tuple[str, ...]:
    """Names of all devices, in the order of the data file."""
    return tuple(name for name in _table("devices.toml") if name != "defaults")


def link_names() -> tuple[str, ...]:
    """Names of all links, in the order of the data file."""
    return tuple(_table("links.toml"))


def twice_the_peak(name: str) -> str:
    """What twice the dense peak of a catalogue's device would be: mostly the figure with sparsity; empty: nothing."""
    row = _table("devices.toml").get(name, {})
    return str(row.get("doubled", "the figure with 2:4 sparsity, which data sheets print first"))


def peak_flops(of: Device, dtype: str, field: str = "training.precision") -> Constant:
    """Dense FLOP/s of a device in one dtype. Raises InputError when the device has no units for it."""
    if dtype in of.peak_flops:
        return of.peak_flops[dtype]
    raise bad_input(
        f"{of.name} has no matrix units for {dtype}", field=field, value=repr(dtype), legal=", ".join(of.peak_flops)
    )


def rate_of(name: str | float, field: str) -> float | None:
    """GB/s (10^9 bytes) when `name` is a number or reads as a rate. Raises InputError for "gb/s"."""
    if not isinstance(name, str):
        return math.nan if isinstance(name, bool) else float(name)
    match = _RATE.fullmatch(name.strip())
    if match is None:
        return None
    number, unit = float(match["number"]), match["unit"]
    if unit is None or unit in _BYTES:
        return number
    if unit in _BITS:
        return number / 8
    raise bad_input("bits or bytes?", field=field, value=repr(name), legal="GB/s for bytes, Gb/s or Gbps for bits")


def stated_link(gb_per_s: float, field: str) -> Link:
    """A link of a stated rate. Raises InputError outside 0.001 to 100,000 GB/s."""
    if not _SLOWEST_GB <= gb_per_s <= _FASTEST_GB:
        raise bad_input(
            "must be GB/s in one direction for one device", field=field, value=f"{gb_per_s:g}",
            legal=f"{_SLOWEST_GB:g} to {_FASTEST_GB:g}, or a name such as nvlink3",
        )  # fmt: skip
    rate = Constant(gb_per_s * 1e9, "data sheet", STATED)
    spelled = repr(gb_per_s).removesuffix(".0")  # exact, so that the name read back gives the same rate
    return Link(f"{spelled} GB/s", rate, Constant(_UNKNOWN_LATENCY_S, "guessed", "usual order for a network"))


@lru_cache(maxsize=2)
def _table(file: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
