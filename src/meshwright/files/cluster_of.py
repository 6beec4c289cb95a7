"""The cluster that a job's table [cluster] names: this machine, or devices of the catalogue or of a machine file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.figures import ValueOrigin
from meshwright.cluster.device import Device
from meshwright.cluster.topology import Cluster, Part
from meshwright.files.cluster_parts import Network, Reading, between, inside, named_device, over, part_of
from meshwright.files.cluster_toml import LOCAL
from meshwright.files.complaints import naming_field
from meshwright.files.job import Job, parse_toml, read_text
from meshwright.files.tables import GroupTable

if TYPE_CHECKING:
    from meshwright.cluster.machine_file import MachineFile

_OF_ONE_KIND = ("gpu", "gpus_per_node", "intra_node", "memory_gib", "peak_tflops", "bandwidth_gb")


@dataclass(frozen=True, slots=True)
class ResolvedCluster:
    """A cluster, which of its settings were detected on this machine, and the machine file it came from."""

    cluster: Cluster
    detected: Mapping[str, ValueOrigin]
    machine: Path | None = None


def cluster_of(job: Job) -> ResolvedCluster:
    """This machine's devices, the catalogue's, those of a machine file, or several kinds. Raises InputError with every
    complaint."""
    table = job.tables.cluster
    path = None if table.machine is None else job.folder / table.machine
    reading = Reading(table)
    if path is not None:
        reading.machine = reading.attempt(lambda: naming_field(lambda: read_machine(path), "cluster.machine"))
    if table.groups is not None:
        return ResolvedCluster(_mixed(reading, table.groups), {}, path)
    name = reading.attempt(lambda: _named(reading))
    if name in (None, LOCAL):
        cluster, detected = _local(reading)
        return ResolvedCluster(cluster, detected, path)
    return ResolvedCluster(_alike(reading, str(name)), {}, path)


def read_machine(path: Path) -> "MachineFile":
    """Read a machine.toml (its format: cluster/machine_file.py). Raises InputError with every complaint."""
    from meshwright.cluster.machine_file import machine_of

    return machine_of(parse_toml(read_text(path), str(path)), str(path))


def _named(reading: Reading) -> str | None:
    """The device's name; None: this machine's. Of a machine file that describes one device, that one is meant."""
    table, machine = reading.table, reading.machine
    if table.gpu is not None or machine is None or not machine.devices:
        return table.gpu
    if len(machine.devices) > 1:
        rule = f"is required: {table.machine} describes several devices"
        raise InputError((Complaint("cluster.gpu", "", rule, "one of " + ", ".join(machine.devices)),))
    ((name, figures),) = machine.devices.items()
    return LOCAL if figures.kind == "cpu" else name


def _local(reading: Reading) -> tuple[Cluster, dict[str, ValueOrigin]]:
    from meshwright.cluster.local import available_devices, local_cluster
    from meshwright.cluster.measured import applied, link_in

    table = reading.table
    detected: dict[str, ValueOrigin] = {}
    gpus = table.gpus
    if gpus is None:
        gpus, detected["cluster.gpus"] = available_devices(), "detected"

    def lookup(name: str) -> Device:
        return named_device(reading, name, table, "cluster", wired=True)

    found = reading.attempt(lambda: naming_field(lambda: local_cluster(gpus, table.memory_gib, lookup), "cluster.gpus"))
    if found is None:
        raise reading.refused()
    figures = applied(reading.machine, found.device, sole=True)
    device = reading.attempt(lambda: over(figures, table, "cluster"))
    intra = link_in(reading.machine, found.intra)
    for key in ("gpus_per_node", "intra_node", "inter_node", "memory_gib"):
        if getattr(table, key) is None:
            detected[f"cluster.{key}"] = "detected"
    per_node = table.gpus_per_node or found.gpus_per_node
    if table.intra_node is not None:
        written = reading.attempt(lambda: inside(reading, figures, table.intra_node, "cluster.intra_node"))
        intra = written or intra
    network = between(reading, link_in(reading.machine, found.inter), "")
    if reading.complaints or device is None or network is None:
        raise reading.refused()
    memory = found.memory_bytes
    if table.memory_gib is None and figures.memory_bytes != found.device.memory_bytes:
        memory = figures.memory_bytes  # the machine file states it
    fields = network.fields(per_node)
    changed = replace(found, device=device, gpus_per_node=per_node, intra=intra, memory_bytes=memory, **fields)
    return changed, detected


def _alike(reading: Reading, name: str) -> Cluster:
    """Devices of one kind."""
    part = part_of(reading, name, reading.table, "cluster")
    network = between(reading, part.intra if part else None, _reason(part) if part else "")
    if reading.complaints or part is None or network is None:
        raise reading.refused()
    return _of_one_kind(part, network)


def _of_one_kind(part: Part, network: Network) -> Cluster:
    fields = network.fields(part.gpus_per_node)
    return Cluster(part.device, part.gpus, part.gpus_per_node, part.intra, memory_bytes=part.memory_bytes, **fields)


def _reason(part: Part) -> str:
    """Why a link between nodes is needed; empty when none is."""
    domain = part.intra.domain or 0
    if part.gpus <= max(part.gpus_per_node, domain):
        return ""
    where = f"NVLink domains of {domain}" if domain > part.gpus_per_node else f"nodes of {part.gpus_per_node}"
    return f"is required: {part.gpus} devices in {where} need a link between nodes"


def _mixed(reading: Reading, groups: list[GroupTable]) -> Cluster:
    """Devices of several kinds, in the order of the ranks."""
    from meshwright.cluster.mixed import mixed

    table = reading.table
    for key in _OF_ONE_KIND:
        if getattr(table, key) is not None:
            rule = "belongs in each of the groups when there are groups"
            reading.complain(key, getattr(table, key), rule, "remove it here")
    total = sum(group.gpus for group in groups)
    if table.gpus not in (None, total):
        counts = " + ".join(str(group.gpus) for group in groups)
        reading.complain("gpus", table.gpus, f"the groups have {counts} = {total} devices", f"{total}, or leave it out")
    found = [part_of(reading, group.gpu, group, f"cluster.groups[{index}]") for index, group in enumerate(groups)]
    parts = [part for part in found if part is not None]
    required = "is required: the groups lie on different nodes"
    if len(groups) == 1:
        required = _reason(parts[0]) if parts else ""
    network = between(reading, parts[0].intra if parts else None, required)
    if reading.complaints or network is None:
        raise reading.refused()
    if len(parts) == 1:
        return _of_one_kind(parts[0], network)
    return mixed(parts, network.link, network.nics_per_node, network.oversubscription, network.rails)
