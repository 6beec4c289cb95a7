"""The cluster that a row of a measured table ran on."""

import re

from meshwright.basics.errors import InputError
from meshwright.cluster.catalogue import device, device_names, link
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.rows import Row

_USUAL_NETWORK = (("V100", 12.5), ("A100", 25.0), ("A800", 25.0), ("MI250", 25.0), ("L40", 25.0), ("RTX", 12.5))
_TODAYS_NETWORK = 50.0  # GB/s a device: one 400 Gb/s adapter each


def row_cluster(row: Row) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and what had to be assumed. Raises InputError when the device is unknown or not stated."""
    assumed: list[str] = []
    gpus = row.gpus or 1
    what = _device(row.gpu, assumed)
    per_node = _devices_a_node(row, what, gpus, assumed)
    intra = _intra(row, what, assumed)
    inter = intra if gpus <= per_node else _inter(row, what, per_node, assumed)
    return Cluster(what, gpus, per_node, intra, inter, what.memory_bytes), tuple(assumed)


def _device(name: str, assumed: list[str]) -> Device:
    """The catalogue's device of a printed name: the name itself, its first word with the memory size, the name without
    remarks in brackets, or the longest name of the catalogue that it contains. Where the memory size is left open, the
    largest card of that name."""
    plain = re.sub(r"\(.*?\)", "", name).strip()
    alternatives = re.split(r"\s+or\s+", plain)
    if len(alternatives) > 1:
        assumed.append(f"gpu {name!r}: taken as {alternatives[0]}")
    plain = alternatives[0]
    sized = re.compile(rf"{re.escape(plain)}-\d+GB-SXM")
    larger = [known for known in device_names() if sized.fullmatch(known)]
    if larger and any(sized.fullmatch(known) for known in _known(plain)):
        chosen = max(larger, key=lambda known: device(known).memory_bytes)
        assumed.append(f"gpu {name!r}: memory size not stated, taken as {chosen}")
        return device(chosen)
    memory = re.search(r"(\d+)\s*GB", name)
    with_size = [f"{plain.split('-')[0].split()[0]}-{memory.group(1)}GB"] if memory and plain else []
    for candidate in (name, *with_size, plain):
        for known in _known(candidate):
            return device(known)
    within = [known for known in device_names() if known.split("-")[0].lower() in plain.lower()]
    if not within:
        return device(name)  # raises, naming the nearest
    chosen = max(within, key=lambda known: (len(known.split("-")[0]), "SXM" in known))
    assumed.append(f"gpu {name!r}: taken as {chosen}")
    return device(chosen)


def _known(name: str) -> tuple[str, ...]:
    """The catalogue's name of a device, or nothing."""
    try:
        return (device(name).name,)
    except InputError:
        return ()


def _devices_a_node(row: Row, what: Device, gpus: int, assumed: list[str]) -> int:
    """Devices of a machine; a rack of 72 joins several (its link knows how many)."""
    per_node = row.gpus_per_node
    if per_node is None:
        per_node = 16 if "DGX-2" in row.intra_node_link.upper() else what.usual_node
        if gpus > per_node:
            assumed.append(f"nodes of {per_node}")
    return max(1, min(gpus, per_node))


def _intra(row: Row, what: Device, assumed: list[str]) -> Link:
    said = re.sub(r"\(.*?\)", "", row.intra_node_link).strip()
    usual = what.nvlink or "pcie4"
    if said and not said.lower().startswith(("nvlink", "infinity")):
        found = _rate(said, per_node=1)
        if found is not None:
            return link(found)
        try:
            return link(said)
        except InputError:
            assumed.append(f"intra_node_link {said!r}: taken as {usual}")
    elif not said and (row.gpus or 1) > 1:
        assumed.append(f"links inside a node: {usual}")
    return link(usual)


def _inter(row: Row, what: Device, per_node: int, assumed: list[str]) -> Link:
    """What one device gets between nodes."""
    said = row.inter_node_link.strip()
    usual = next((rate for name, rate in _USUAL_NETWORK if what.name.startswith(name)), _TODAYS_NETWORK)
    if not said:
        assumed.append(f"links between nodes: {usual:g} GB/s a device")
        return link(usual)
    found = _rate(said, per_node)
    if found is not None:
        return link(found)
    plain = re.sub(r"\(.*?\)", "", said).strip()
    for name in (plain, *(word for word in reversed(plain.split()) if word[:1].isalpha())):
        try:
            return link(name)
        except InputError:
            continue
    assumed.append(f"inter_node_link {said!r}: {usual:g} GB/s a device")
    return link(usual)


def _rate(said: str, per_node: int) -> float | None:
    """GB/s a device of "8x HDR200 IB", "4x OmniPath 100 Gb/s per node", "1600 Gbps per node", "200 Gb/s per GPU"."""
    text = said.lower()
    adapters = re.search(r"\b(\d+)\s*x\s", text) or re.search(r"\b(\d+)x", text)
    rate = re.search(r"(\d+(?:\.\d+)?)\s*(?:gb/s|gbps|gbit/s|gb\b)", text)
    gigabits = float(rate.group(1)) if rate else next(
        (speed for name, speed in (("ndr", 400.0), ("hdr100", 100.0), ("hdr", 200.0), ("edr", 100.0)) if name in text),
        None,
    )  # fmt: skip
    if gigabits is None:
        return None
    if adapters:
        return int(adapters.group(1)) * gigabits / 8 / per_node
    return gigabits / 8 / (per_node if "per node" in text else 1)
