"""Devices and links by name, with the figures of a machine file over those of the catalogue."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.basics.errors import InputError
from meshwright.basics.figures import Constant
from meshwright.cluster.catalogue import board_link, device, unlisted
from meshwright.cluster.device import Device, Link
from meshwright.cluster.machine_file import DeviceFigures, MachineFile
from meshwright.cluster.names import plain
from meshwright.cluster.network import network

_USUAL_LATENCY = Constant(8e-6, "guessed", "usual order for a network")


def device_in(machine: MachineFile | None, name: str, where: str = "cluster.gpu") -> Device:
    """The device of that name: the catalogue's with the file's figures over it, or one that only the file has.
    Raises InputError for a name that neither knows."""
    own = None if machine is None else _row(machine.devices, name)
    try:
        return applied(machine, device(name, where))
    except InputError:
        if machine is None or own is None:
            raise
    return _new_device(own, machine.devices[own])


def applied(machine: MachineFile | None, of: Device, sole: bool = False) -> Device:
    """The device with the file's figures for it over its own. `sole`: the file's only device of its kind is meant,
    whatever its name."""
    if machine is None:
        return of
    own = _row(machine.devices, of.name) or next((row for row in machine.devices if _same(row, of.name)), None)
    kin = [row for row, figures in machine.devices.items() if figures.kind == of.kind]
    if own is None and sole and len(kin) == 1:
        own = kin[0]
    if own is None:
        return of
    found = machine.devices[own]
    fields = {"bandwidth_gb": "memory_bandwidth", "launch_us": "launch_s", "reserved_gib": "reserved_bytes"}
    changes: dict[str, Any] = {fields[key]: value for key, value in found.figures.items() if key in fields}
    if "memory_gib" in found.figures:
        changes["memory_bytes"] = round(found.figures["memory_gib"].value)
    return replace(of, peak_flops={**of.peak_flops, **found.peaks}, **changes)


def link_in(machine: MachineFile | None, of: Link) -> Link:
    """The link with the file's figures for it over its own."""
    own = None if machine is None else _row(machine.links, of.name)
    if machine is None or own is None:
        return of
    found = machine.links[own]
    return replace(
        of, bytes_per_s=found.get("gb_per_s", of.bytes_per_s), latency_s=found.get("latency_us", of.latency_s)
    )


def network_in(machine: MachineFile | None, written: str | float, where: str) -> tuple[Link, int | None]:
    """As `network`, with the file's figures over the catalogue's, or a link that only the file has."""
    own = None if machine is None else _row(machine.links, str(written))
    try:
        found, adapters = network(written, where)
    except InputError:
        if machine is None or own is None:
            raise
        return _new_link(own, machine.links[own]), None
    return link_in(machine, found), adapters


def intra_in(machine: MachineFile | None, of: Device, written: str | float | None, where: str) -> Link:
    """As `board_link`, likewise."""
    own = None if machine is None or written is None else _row(machine.links, str(written))
    try:
        found = board_link(of, written, where)
    except InputError:
        if machine is None or own is None:
            raise
        return _new_link(own, machine.links[own])
    return link_in(machine, found)


def _new_link(name: str, row: Mapping[str, Constant]) -> Link:
    return Link(name, row["gb_per_s"], row.get("latency_us", _USUAL_LATENCY))


def _row(rows: Mapping[str, Any], name: str) -> str | None:
    return next((row for row in rows if plain(row) == plain(name)), None)


def _same(row: str, name: str) -> bool:
    """Are both names of one device of the catalogue ("A100" and "A100-40GB-SXM")?"""
    try:
        return device(row).name == name
    except InputError:
        return False


def _new_device(name: str, found: DeviceFigures) -> Device:
    memory = round(found.figures["memory_gib"].value)
    plainly = unlisted(name, memory, found.peaks, found.figures["bandwidth_gb"])
    given = found.figures
    return replace(
        plainly, kind=found.kind, launch_s=given.get("launch_us", plainly.launch_s),
        reserved_bytes=given.get("reserved_gib", plainly.reserved_bytes),
    )  # fmt: skip
