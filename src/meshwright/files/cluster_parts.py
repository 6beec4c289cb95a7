"""The parts of a cluster as a job states them: devices of one kind, and the network between their nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.quantities import GIB
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Part
from meshwright.files.complaints import naming_field, shown
from meshwright.files.tables import ClusterTable, GroupTable

if TYPE_CHECKING:
    from meshwright.cluster.machine_file import MachineFile

Value = TypeVar("Value")


@dataclass
class Reading:
    """A table [cluster] being read: the machine file it names, and everything that is wrong with it."""

    table: ClusterTable
    machine: "MachineFile | None" = None
    complaints: list[Complaint] = field(default_factory=list)

    def attempt(self, step: Callable[[], Value]) -> Value | None:
        """What the step gives; None when it complains, which is kept."""
        try:
            return step()
        except InputError as error:
            self.complaints += error.complaints
            return None

    def complain(self, key: str, value: object, rule: str, legal: str = "") -> None:
        """Keep a complaint about a key of the table."""
        text = "" if value == "" else shown(value)
        self.complaints.append(Complaint(f"cluster.{key}", text, rule, legal))

    def refused(self) -> InputError:
        """Everything that is wrong."""
        return InputError(tuple(self.complaints))


@dataclass(frozen=True, slots=True)
class Network:
    """The link of one adapter between nodes, and how its rate is shared."""

    link: Link
    written: bool  # false: the link inside a node stands in
    nics_per_node: int | None
    oversubscription: float
    rails: bool

    def fields(self, gpus_per_node: int) -> dict[str, Any]:
        """The fields of a Cluster with nodes of that many devices."""
        from meshwright.cluster.network import one_devices_share

        inter = self.link
        if self.written:
            inter = one_devices_share(inter, gpus_per_node, self.nics_per_node, self.oversubscription)
        return {
            "inter": inter, "nics_per_node": self.nics_per_node, "oversubscription": self.oversubscription,
            "rails": self.rails,
        }  # fmt: skip


def over(device: Device, table: ClusterTable | GroupTable, where: str) -> Device:
    """The device with the figures that the table states over its own. Raises InputError."""
    from meshwright.cluster.stated import Stated, with_figures

    given = Stated(table.peak_tflops, table.bandwidth_gb, table.memory_gib)
    return with_figures(device, given, lambda key: f"{where}.{key}")


def inside(reading: Reading, device: Device, written: str | float | None, where: str) -> Link:
    """The link between the devices of a node. Raises InputError."""
    from meshwright.cluster.measured import intra_in

    return naming_field(lambda: intra_in(reading.machine, device, written, where), where)


def between(reading: Reading, intra: Link | None, required: str) -> Network | None:
    """The network. `intra` is taken where no link between nodes is given, unless `required` says why one must be. None
    when something is wrong, which is kept."""
    from meshwright.cluster.catalogue import link_names
    from meshwright.cluster.measured import network_in

    table = reading.table
    written, adapters = table.inter_node, table.nics_per_node
    inter = intra
    if written is not None:
        where = "cluster.inter_node"
        found = reading.attempt(lambda: naming_field(lambda: network_in(reading.machine, written, where), where))
        inter, described = found or (None, None)
        if described is not None and adapters not in (None, described):
            rule = f"contradicts inter_node, which says {described} a node"
            reading.complain("nics_per_node", adapters, rule, "keep one of them")
        adapters = adapters or described
    elif required:
        reading.complain("inter_node", "", required, "GB/s, or one of " + ", ".join(link_names()))
        return None
    over = 1.0 if table.oversubscription is None else table.oversubscription
    rails = True if table.rails is None else table.rails
    return None if inter is None else Network(inter, written is not None, adapters, over, rails)


def part_of(reading: Reading, name: str, table: ClusterTable | GroupTable, where: str) -> Part | None:
    """Devices of one kind. Its complaints are kept; None when there are any."""
    from meshwright.cluster.catalogue import board_kind
    from meshwright.cluster.catalogue import device as device_named

    before = len(reading.complaints)
    device = reading.attempt(lambda: named_device(reading, name, table, where))
    gpus = table.gpus
    if gpus is None:
        reading.complaints.append(Complaint(f"{where}.gpus", "", f"is required with gpu = {shown(name)}"))
        gpus = 1
    intra = None
    if device is not None:
        intra = reading.attempt(lambda: inside(reading, device, table.intra_node, f"{where}.intra_node"))
    elif table.intra_node is not None and board_kind(table.intra_node) is None:  # say what is wrong with the link too
        reading.attempt(lambda: inside(reading, device_named("H100"), table.intra_node, f"{where}.intra_node"))
    if len(reading.complaints) > before or device is None or intra is None:
        return None
    per_node = table.gpus_per_node or min(gpus, device.usual_node)
    memory = device.memory_bytes if table.memory_gib is None else round(table.memory_gib * GIB)
    return Part(device, gpus, per_node, intra, memory)


def named_device(
    reading: Reading, name: str, table: ClusterTable | GroupTable, where: str, wired: bool = False
) -> Device:
    """The catalogue's or the machine file's device with the stated figures over it, or one made of stated figures.
    `wired`: its link is known. Raises InputError."""
    from meshwright.cluster.measured import device_in
    from meshwright.cluster.stated import Stated, from_figures, peak_complaints

    given = Stated(table.peak_tflops, table.bandwidth_gb, table.memory_gib)
    try:
        known = naming_field(lambda: device_in(reading.machine, name, f"{where}.gpu"), f"{where}.gpu")
    except InputError as error:
        missing = list(given.missing)
        if table.intra_node is None and not wired and (table.gpus or 2) > 1:
            missing.append("intra_node")
        if missing:
            more = peak_complaints(name, {}, table.peak_tflops or {}, f"{where}.peak_tflops")
            raise InputError((_unknown(error.complaints[0], missing, where), *more)) from None
        return from_figures(name, given, lambda key: f"{where}.{key}")
    return over(known, table, where)


def _unknown(complaint: Complaint, missing: list[str], where: str) -> Complaint:
    """The complaint about an unknown device, with what would make it known."""
    near, _, listed = complaint.legal.rpartition("known: ")
    keys = ", ".join(f"{where}.{key}" for key in missing)
    legal = f"{near}{'or ' if near else ''}give the numbers: {keys}; known: {listed}"
    return replace(complaint, legal=legal)
