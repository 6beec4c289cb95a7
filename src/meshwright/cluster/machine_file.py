"""machine.toml: what was measured on a machine, over the catalogue's figures or for devices and links that it lacks.

    format = 1
    note = "8 ranks, 4 repeats"                   # when and how: becomes the source of every figure

    [devices.H100-SXM]                            # a catalogue name, or a new one (then all three figures below)
    kind = "gpu"                                  # gpu | cpu (a worker of this machine); left out: gpu
    peak_tflops = { bf16 = { value = 794.5, spread = 0.02 }, fp8 = 1510 }
    bandwidth_gb = 3020
    memory_gib = 79.1
    launch_us = { value = 3.9, origin = "measured" }
    reserved_gib = 0.9

    [links.ib-ndr]                                # likewise (a new one needs gb_per_s)
    gb_per_s = { value = 46.1, spread = 0.05 }    # one direction, one device
    latency_us = 7.5

    [coefficients]                                # the predictor's constants by name
    intra_efficiency = 0.81

A value is a number or a table: value, spread (relative, half of the middle range), origin (left out: measured), source.
What the file does not name keeps the catalogue's figure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.figures import Constant, Origin
from meshwright.basics.names import nearest
from meshwright.basics.quantities import GIB
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.device import Device, Link
from meshwright.cluster.stated import peak_complaints

FORMAT = 1
_TOP = ("format", "note", "devices", "links", "coefficients")
_SCALES = {"bandwidth_gb": 1e9, "launch_us": 1e-6, "memory_gib": GIB, "reserved_gib": GIB}
_LINK_SCALES = {"gb_per_s": 1e9, "latency_us": 1e-6}
_VALUE_KEYS = ("value", "spread", "origin", "source")
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """[devices.NAME] in bytes, seconds, FLOP/s; what is left out is not here."""

    kind: Literal["gpu", "cpu"]
    peaks: Mapping[str, Constant]
    figures: Mapping[str, Constant]  # by key of the file


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A machine.toml. `spreads` holds the relative spread of a value by its place, "devices.NAME.launch_us"."""

    file: str = ""
    devices: Mapping[str, DeviceFigures] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, Constant]] = field(default_factory=dict)
    coefficients: Mapping[str, Constant] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)


def machine_of(data: Mapping[str, Any], file: str) -> MachineFile:
    """The machine in the tables of a TOML file called `file`. Raises InputError with every complaint."""
    reader = _Reader(data, file)
    found = reader.machine()
    if reader.complaints:
        raise InputError(tuple(reader.complaints))
    return found


def _listed(name: str) -> Device | None:
    try:
        return device(name)
    except InputError:
        return None


def _listed_link(name: str) -> Link | None:
    try:
        return link(name)
    except InputError:
        return None


class _Reader:
    """Checks the tables one by one and keeps every complaint."""

    def __init__(self, data: Mapping[str, Any], file: str) -> None:
        self.data, self.file = data, file
        self.complaints: list[Complaint] = []
        self.spreads: dict[str, float] = {}
        note = data.get("note", "")
        name = file.rpartition("/")[2]
        self.source = f"{name}: {note}" if note and isinstance(note, str) else name

    def machine(self) -> MachineFile:
        self._known_keys(self.data, _TOP, "")
        if (version := self.data.get("format", FORMAT)) != FORMAT or isinstance(version, bool):
            self._complain("format", version, f"this version of meshwright reads format {FORMAT}")
        if not isinstance(self.data.get("note", ""), str):
            self._complain("note", self.data["note"], "must be text in quotes")
        devices = {name: self._device(name, row) for name, row in self._table(self.data, "devices").items()}
        links = {name: self._link(name, row) for name, row in self._table(self.data, "links").items()}
        coefficients = {
            name: value
            for name, written in self._table(self.data, "coefficients").items()
            if (value := self._value(written, f"coefficients.{name}", 1.0, -_LARGEST)) is not None
        }
        return MachineFile(self.file, devices, links, coefficients, self.spreads)

    def _device(self, name: str, row: Any) -> DeviceFigures:
        where = f"devices.{name}"
        row = self._table({name: row}, name, where)
        self._known_keys(row, ("kind", "peak_tflops", *_SCALES), where)
        kind = row.get("kind", "gpu")
        if kind not in ("gpu", "cpu"):
            self._complain(f"{where}.kind", kind, "is not one of the legal values", "gpu | cpu")
        peaks: dict[str, Constant] = {}
        for dtype, written in self._table(row, "peak_tflops", f"{where}.peak_tflops").items():
            value = self._value(written, f"{where}.peak_tflops.{dtype}", 1e12, 0.0)
            if value is not None:
                peaks[dtype] = value
        known = _listed(name)
        stated = {dtype: peak.value / 1e12 for dtype, peak in peaks.items()}
        dense = known.peak_flops if known else {}
        wrong = peak_complaints(known.name if known else name, dense, stated, f"{where}.peak_tflops")
        self.complaints += [replace(complaint, file=self.file) for complaint in wrong]
        figures = self._values(row, _SCALES, where, zero=("reserved_gib", "launch_us"))
        if known is None and kind == "gpu":
            self._required(row, ("peak_tflops", "memory_gib", "bandwidth_gb"), where, "device")
        return DeviceFigures("cpu" if kind == "cpu" else "gpu", peaks, figures)

    def _link(self, name: str, row: Any) -> dict[str, Constant]:
        where = f"links.{name}"
        row = self._table({name: row}, name, where)
        self._known_keys(row, tuple(_LINK_SCALES), where)
        if _listed_link(name) is None:
            self._required(row, ("gb_per_s",), where, "link")
        return self._values(row, _LINK_SCALES, where, zero=("latency_us",))

    def _required(self, row: Mapping[str, Any], keys: tuple[str, ...], where: str, what: str) -> None:
        for key in keys:
            if key not in row:
                self._complain(f"{where}.{key}", None, f"is required: the catalogue has no {what} of this name")

    def _values(
        self, row: Mapping[str, Any], scales: Mapping[str, float], where: str, zero: tuple[str, ...]
    ) -> dict[str, Constant]:
        found = {
            key: self._value(row[key], f"{where}.{key}", scale, -math.ulp(0.0) if key in zero else 0.0)
            for key, scale in scales.items()
            if key in row
        }
        return {key: value for key, value in found.items() if value is not None}

    def _value(self, written: Any, where: str, scale: float, above: float) -> Constant | None:
        """A number or {value, spread, origin, source}, times `scale`."""
        parts: dict[str, Any] = written if isinstance(written, dict) else {"value": written}
        self._known_keys(parts, _VALUE_KEYS, where)
        before = len(self.complaints)
        number, origin = parts.get("value"), parts.get("origin", "measured")
        place = where + (".value" if isinstance(written, dict) else "")
        if number is None:
            self._complain(place, None, "is required")
        elif isinstance(number, bool) or not isinstance(number, int | float):
            self._complain(place, number, "must be a number")
        elif not above < number <= _LARGEST:
            bound = "from 0" if -1 < above < 0 else "above 0" if above == 0 else f"from {above:.0f}"
            self._complain(place, number, "is out of range", f"{bound} to {_LARGEST:.0f}")
        if origin not in get_args(Origin):
            self._complain(f"{where}.origin", origin, "is not one of the legal values", " | ".join(get_args(Origin)))
        if not isinstance(source := parts.get("source", self.source), str):
            self._complain(f"{where}.source", source, "must be text in quotes")
        if "spread" in parts:
            spread = parts["spread"]
            if isinstance(spread, bool) or not isinstance(spread, int | float) or not 0 <= spread <= _LARGEST:
                self._complain(f"{where}.spread", spread, "must be a relative spread", "0.05 means 5 %")
            else:
                self.spreads[where] = float(spread)
        if number is None or len(self.complaints) > before:
            return None
        return Constant(number * scale, origin, source)

    def _table(self, row: Mapping[str, Any], key: str, where: str = "") -> dict[str, Any]:
        found = row.get(key, {})
        if isinstance(found, dict):
            return found
        self._complain(where or key, found, "must be a table")
        return {}

    def _known_keys(self, row: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in row:
            if key not in known:
                near = nearest(key, known)
                prefix = f"{where}." if where else ""
                hint = f"did you mean {prefix}{near}?" if near else f"known here: {', '.join(known)}"
                self._complain(f"{prefix}{key}", row[key], "unknown key", hint)

    def _complain(self, where: str, value: object, rule: str, legal: str = "") -> None:
        shown = "" if value is None else str(value)[:60] if len(str(value)) < 500 else "a long value"
        self.complaints.append(Complaint(where, shown, rule, legal, self.file))
