"""What a trace event is: compute, communication, copy or host. Collective metadata decides first, then names."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from meshwright.timeline.columns import Kind

_DEVICE = {
    "kernel": Kind.COMPUTE, "gpu_memcpy": Kind.COPY, "gpu_memset": Kind.COPY, "memcpy": Kind.COPY,
    "memset": Kind.COPY,
}  # fmt: skip

HostCause = Literal["data loading", "synchronising", "allocation", "garbage collection"]
_CAUSES: dict[HostCause, str] = {
    "data loading": "data_loading", "synchronising": "synchronising", "allocation": "allocation",
    "garbage collection": "garbage",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Names:
    """The lists of communication_names.toml."""

    kernels: tuple[str, ...]
    transfers: tuple[str, ...]
    suspects: tuple[str, ...]
    annotations: tuple[str, ...]
    host_operations: tuple[str, ...]
    data_loading: tuple[str, ...]
    synchronising: tuple[str, ...]
    allocation: tuple[str, ...]
    garbage: tuple[str, ...]


@cache
def communication_names() -> Names:
    """The name lists, read once."""
    table = tomllib.loads(files("meshwright.traces").joinpath("communication_names.toml").read_text("utf-8"))
    return Names(**{key: tuple(value) for key, value in table.items()})


def on_device(category: str) -> bool:
    """Is an event of that category (in lower case) work on a device?"""
    return category in _DEVICE


def device_kind(category: str, name: str, collective: str | None) -> Kind:
    """The kind of a device event; `collective` is its collective's name where the trace recorded it.

    A kernel that sounds like communication and is on no list is UNCLASSIFIED rather than guessed.
    """
    kind = _DEVICE[category]
    return _kernel_kind(name) if kind is Kind.COMPUTE and not collective else Kind.COMMUNICATION if collective else kind


@cache
def _kernel_kind(name: str) -> Kind:
    lower, names = name.lower(), communication_names()
    if any(fragment in lower for fragment in names.kernels):
        return Kind.COMMUNICATION
    return Kind.UNCLASSIFIED if any(fragment in lower for fragment in names.suspects) or not lower else Kind.COMPUTE


@cache
def host_communication(name: str) -> bool:
    """Is a host event of that name (an operation or an annotation) a collective or transfer of a CPU group?"""
    lower, names = name.lower(), communication_names()
    return lower.startswith(names.annotations) or lower.startswith(names.host_operations)


@cache
def host_cause(name: str) -> HostCause | None:
    """What a host call or operation of that name keeps the host busy with, where it is on a list; else None."""
    lower, names = name.lower(), communication_names()
    for cause, listed in _CAUSES.items():
        if any(fragment in lower for fragment in getattr(names, listed)) and "mallocasync" not in lower:
            return cause
    return None


@cache
def is_transfer(name: str) -> bool:
    """Is communication of that name between two ranks, rather than a collective?"""
    lower, names = name.lower(), communication_names()
    return any(fragment in lower for fragment in names.transfers)
