"""The cluster that a job's table [cluster] names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.figures import ValueOrigin
from meshwright.basics.quantities import GIB
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.complaints import naming_field
from meshwright.files.job import Job

Value = TypeVar("Value")
LOCAL = "local"
USUAL_NODE = 8  # GPUs of a node when the job does not say


@dataclass(frozen=True, slots=True)
class ResolvedCluster:
    """A cluster, which of its settings were detected on this machine, and the machine file it came from."""

    cluster: Cluster
    detected: Mapping[str, ValueOrigin]
    machine: Path | None = None


def cluster_of(job: Job) -> ResolvedCluster:
    """This machine's devices, or the catalogue's. Raises InputError with every complaint."""
    table = job.tables.cluster
    if table.groups is not None:
        raise bad_input(
            "mixed clusters cannot be planned yet", field="cluster.groups", value=f"{len(table.groups)} groups",
            legal="give gpu and gpus of one kind of device",
        )  # fmt: skip
    if table.machine is not None and table.gpu is not None:
        raise bad_input("give either gpu or machine", field="cluster", value="gpu, machine", legal="keep one of them")
    if table.machine is not None:
        raise bad_input(
            "machine files cannot be read yet: this version has no calibrate", field="cluster.machine",
            value=repr(table.machine), legal='gpu = "local" measures with what this machine has',
        )  # fmt: skip
    return _local(job) if table.gpu in (None, LOCAL) else _catalogue(job)


def _local(job: Job) -> ResolvedCluster:
    from meshwright.cluster.local import available_devices, local_cluster

    table = job.tables.cluster
    detected: dict[str, ValueOrigin] = {}
    gpus = table.gpus
    if gpus is None:
        gpus, detected["cluster.gpus"] = available_devices(), "detected"
    cluster = naming_field(lambda: local_cluster(gpus, table.memory_gib), "cluster.gpus")
    changes: dict[str, Any] = {}
    if table.gpus_per_node is not None:
        changes["gpus_per_node"] = table.gpus_per_node
    else:
        detected["cluster.gpus_per_node"] = "detected"
    for key, part in (("intra_node", "intra"), ("inter_node", "inter")):
        written = getattr(table, key)
        if written is None:
            detected[f"cluster.{key}"] = "detected"
        else:
            changes[part] = _link(written, f"cluster.{key}")
    if table.memory_gib is None:
        detected["cluster.memory_gib"] = "detected"
    return ResolvedCluster(replace(cluster, **changes), detected)


def _link(written: str | float, field: str) -> Link:
    from meshwright.cluster.catalogue import link

    return naming_field(lambda: link(written), field)


def _catalogue(job: Job) -> ResolvedCluster:
    from meshwright.cluster.catalogue import device, link_names

    table = job.tables.cluster
    complaints: list[Complaint] = []

    def attempt(step: Callable[[], Value]) -> Value | None:
        try:
            return step()
        except InputError as error:
            complaints.extend(error.complaints)
            return None

    found: Device | None = attempt(lambda: naming_field(lambda: device(str(table.gpu)), "cluster.gpu"))
    if table.gpus is None:
        complaints.append(Complaint("cluster.gpus", "", f"is required with gpu = {table.gpu!r}"))
    gpus = table.gpus or 1
    per_node = table.gpus_per_node or min(gpus, USUAL_NODE)
    intra: Link | None = None
    if table.intra_node is not None:
        written = table.intra_node
        intra = attempt(lambda: _link(written, "cluster.intra_node"))
    elif found is not None:
        intra = attempt(lambda: _link(found.nvlink or "pcie4", "cluster.intra_node"))
    inter = intra
    if table.inter_node is not None:
        between = table.inter_node
        inter = attempt(lambda: _link(between, "cluster.inter_node"))
    elif gpus > per_node:
        rule = f"is required: {gpus} devices in nodes of {per_node} need a link between nodes"
        complaints.append(Complaint("cluster.inter_node", "", rule, "GB/s, or one of " + ", ".join(link_names())))
    if complaints or found is None or intra is None or inter is None:
        raise InputError(tuple(complaints))
    memory = found.memory_bytes if table.memory_gib is None else round(table.memory_gib * GIB)
    return ResolvedCluster(Cluster(found, gpus, per_node, intra, inter, memory), {})
