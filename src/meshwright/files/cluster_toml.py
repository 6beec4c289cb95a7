"""A cluster written back as the table [cluster], so that reading it gives an equal cluster."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB
from meshwright.cluster.catalogue import STATED, device_names, rate_of
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster, Part

LOCAL = "local"
Written = Mapping[str, tuple[str, str]]
"""Of every field how it was spelled and its origin ("user", "default", ...)."""


def cluster_table(cluster: Cluster, written: Written, machine: Path | None, folder: Path | None) -> dict[str, Any]:
    """The keys of [cluster]; None where a key is left out. The machine file's path starts at `folder` when given."""

    def typed(key: str) -> bool:
        return written.get(f"cluster.{key}", ("", "default"))[1] == "user"

    table: dict[str, Any] = {"machine": None if machine is None else _relative(machine, folder)}
    if cluster.parts:
        table["groups"] = [_part_table(part) for part in cluster.parts]
        table["inter_node"] = _link_text(cluster.inter)
    elif cluster.local:
        table |= {"gpu": LOCAL, **_kind_table(_as_part(cluster), typed("memory_gib"))}
        table["intra_node"] = _link_text(cluster.intra) if typed("intra_node") else None
        table["inter_node"] = _link_text(cluster.inter) if typed("inter_node") else None
    else:
        table |= _part_table(_as_part(cluster), typed("memory_gib"))
        apart = not cluster.one_domain or cluster.inter != cluster.intra
        table["inter_node"] = _link_text(cluster.inter) if apart else None
    return {
        **table,
        "nics_per_node": cluster.nics_per_node,
        "oversubscription": cluster.oversubscription if cluster.oversubscription != 1.0 else None,
        "rails": None if cluster.rails else False,
    }


def _as_part(cluster: Cluster) -> Part:
    return Part(cluster.device, cluster.gpus, cluster.gpus_per_node, cluster.intra, cluster.memory_bytes)


def _part_table(part: Part, limited: bool = False) -> dict[str, Any]:
    return {"gpu": part.device.name, **_kind_table(part, limited), "intra_node": _link_text(part.intra)}


def _kind_table(part: Part, limited: bool) -> dict[str, Any]:
    """Sizes and stated figures. A limit that the user set must reach the ranks, which hold to it (`limited`)."""
    device = part.device
    made_of_numbers = device.kind == "gpu" and _stated(device) and device.name not in device_names()
    shown = limited or made_of_numbers or part.memory_bytes != device.memory_bytes
    bandwidth = device.memory_bandwidth
    return {
        "gpus": part.gpus,
        "gpus_per_node": part.gpus_per_node,
        "memory_gib": part.memory_bytes / GIB if shown else None,
        "peak_tflops": _stated_peaks(device) or None,
        "bandwidth_gb": unscaled(bandwidth.value, 1e9) if _stated(device) else None,
    }


def _stated(device: Device) -> bool:
    return device.memory_bandwidth.source == STATED


def _stated_peaks(device: Device) -> dict[str, float]:
    peaks = device.peak_flops.items()
    return {dtype: unscaled(peak.value, 1e12) for dtype, peak in peaks if peak.source == STATED}


def unscaled(value: float, scale: float) -> float:
    """The number that times `scale` gives exactly `value`; the quotient where there is none."""
    quotient = value / scale
    near = (quotient, math.nextafter(quotient, 0.0), math.nextafter(quotient, math.inf))
    return next((number for number in near if number * scale == value), quotient)


def _link_text(link: Link) -> str | float:
    """Its name, or GB/s when the name says the rate. The name stands for one adapter: what shares it is written too."""
    try:
        rate = rate_of(link.name, "")
    except InputError:
        rate = None
    return link.name if rate is None else rate


def _relative(path: Path, folder: Path | None) -> str:
    return str(path) if folder is None else os.path.relpath(path.resolve(), folder.resolve())
