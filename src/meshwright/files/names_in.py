"""Unknown names in tables that could not be read whole, so that they are reported beside what is ill-typed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshwright.basics.errors import Complaint, InputError
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.network import network
from meshwright.files.cluster_toml import LOCAL
from meshwright.model.catalogue import named

Named = tuple[str, Any, Callable[[str, str], object]]


def unknown_names(tables: Mapping[str, Any], file: str) -> list[Complaint]:
    """Complaints about models, devices and links that are spelled as text and are in no catalogue."""
    found: list[Complaint] = []
    for field, name, look_up in (*_model(tables.get("model")), *_cluster(tables.get("cluster"), "cluster")):
        if isinstance(name, str) and name.strip():
            try:
                look_up(name, field)
            except InputError as error:
                found += [replace(complaint, file=file) for complaint in error.complaints]
    return found


def _model(table: Any) -> Iterator[Named]:
    if isinstance(table, Mapping):
        yield "model.name", table.get("name"), named


def _cluster(table: Any, where: str) -> Iterator[Named]:
    if not isinstance(table, Mapping):
        return
    own = table.get("machine") is not None or table.get("peak_tflops") is not None  # it may bring its own device
    if not own and table.get("gpu") != LOCAL:
        yield f"{where}.gpu", table.get("gpu"), device
    yield f"{where}.intra_node", table.get("intra_node"), link
    yield f"{where}.inter_node", table.get("inter_node"), network
    groups = table.get("groups")
    if isinstance(groups, list) and not own:
        for index, group in enumerate(groups):
            yield from _cluster(group, f"{where}.groups[{index}]")
