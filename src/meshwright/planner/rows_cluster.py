"""The cluster that a row of a measured table ran on."""

import re

from meshwright.basics.errors import InputError
from meshwright.cluster.catalogue import board_link, device, device_names, link
from meshwright.cluster.device import Device, Link
from meshwright.cluster.network import network, one_devices_share
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
    memory = re.search(r"(\d+)\s*GB", name)  # also one of a remark with other figures: "H100 (96 GB HBM2e, 500 W)"
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
    """The link inside a node: the board's own where a kind of its makers is printed, whatever generation is said."""
    said = row.intra_node_link.strip()
    if not said.lower().startswith(("nvlink", "infinity")):
        if not said and (row.gpus or 1) > 1:
            assumed.append(f"links inside a node: {board_link(what, None).name}")
        try:
            return board_link(what, said or None)
        except InputError:
            assumed.append(f"intra_node_link {said!r}: taken as {board_link(what, None).name}")
    return board_link(what, None)


def _inter(row: Row, what: Device, per_node: int, assumed: list[str]) -> Link:
    """What one device gets between nodes."""
    said = row.inter_node_link.strip()
    usual = next((rate for name, rate in _USUAL_NETWORK if what.name.startswith(name)), _TODAYS_NETWORK)
    if said:
        try:
            one, adapters = network(said, "inter_node_link")
        except InputError:
            assumed.append(f"inter_node_link {said!r}: {usual:g} GB/s a device")
        else:
            return one_devices_share(one, per_node, adapters, oversubscription=1.0)
    else:
        assumed.append(f"links between nodes: {usual:g} GB/s a device")
    return link(usual)
