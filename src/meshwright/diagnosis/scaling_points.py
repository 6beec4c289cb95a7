"""Throughput tables as points: one a size and kind of hardware, with repeats and their spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from meshwright.basics.errors import bad_input
from meshwright.traces.tables import CsvTable, read_csv

_RATES = ("tokens_per_s", "samples_per_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu")
_OPTIONAL = ("nodes", "step_s", *_RATES, "global_batch", "seq_len", "params_b")
_FINGERPRINT = ("gpu", "link", "software")

Kind = Literal["weak", "strong", "mixed", "not stated"]


@dataclass(frozen=True, slots=True)
class Point:
    """One size: medians over its repeats. `rate` is work a second of the whole job, in `unit`."""

    devices: int
    nodes: int | None
    rate: float
    unit: str  # tokens, samples, steps or FLOPs
    step_s: float | None
    work: float | None  # a step, in samples where they are known
    params_b: float | None
    repeats: int
    spread: float | None  # (highest - lowest) / median of the repeats; None with one

    @property
    def per_device(self) -> float:
        """Work a second of one device."""
        return self.rate / self.devices


@dataclass(frozen=True, slots=True)
class Series:
    """Points on one kind of hardware, by size; `kind` says how the work grew with it."""

    hardware: str
    kind: Kind
    points: tuple[Point, ...]

    def efficiency(self, point: Point) -> float:
        """The rate of one device over that at the smallest size."""
        return point.per_device / self.points[0].per_device


def read_series(path: Path) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """The series of a throughput table and notes on it. Raises InputError when the table cannot be used."""
    table = read_csv(path, (), optional=("devices", "gpus", *_OPTIONAL), texts=_FINGERPRINT, filled=("devices", "gpus"))
    key = "devices" if "devices" in table.numbers else "gpus"
    if key not in table.numbers:
        raise bad_input("columns are missing", value="devices", file=str(path))
    devices = table.whole(key)
    if (devices < 1).any():
        raise bad_input("must be 1 or more", field=key, file=str(path))
    hardware = _hardware(table)
    notes = list(table.notes)
    series = []
    for one in dict.fromkeys(hardware):
        rows = [k for k, name in enumerate(hardware) if name == one]
        points = _points(table, devices.tolist(), rows, notes)
        if points:
            series.append(Series(one, _kind(points), tuple(points)))
    if not series:
        raise bad_input("no row says how fast it was", file=str(path), legal=", ".join(("step_s", *_RATES)))
    return tuple(series), tuple(notes)


def _hardware(table: CsvTable) -> list[str]:
    columns = [table.texts[name] for name in _FINGERPRINT if name in table.texts]
    return [", ".join(cell for cell in cells if cell) for cells in zip(*columns, strict=True)] or [""] * len(table)


def _points(table: CsvTable, devices: Sequence[int], rows: Sequence[int], notes: list[str]) -> list[Point]:
    found: dict[tuple[int, float, float], list[Mapping[str, float]]] = {}
    for row in rows:
        cells = {name: float(values[row]) for name, values in table.numbers.items() if not np.isnan(values[row])}
        if not any(cells.get(name, 0) > 0 for name in ("step_s", *_RATES)):
            notes.append(f"{table.path.name}: line {table.lines[row]} says no throughput and was left out")
            continue
        key = devices[row], cells.get("global_batch", -1.0), cells.get("params_b", -1.0)
        found.setdefault(key, []).append(cells)
    return [_point(size, cells) for (size, _, _), cells in sorted(found.items())]


def _point(devices: int, cells: Sequence[Mapping[str, float]]) -> Point:
    rates = [_rate(devices, one) for one in cells]
    unit = rates[0][1]
    values = [rate for rate, own in rates if own == unit]
    rate = float(np.median(values))
    steps = [one["step_s"] for one in cells if one.get("step_s", 0) > 0]
    batch, length = cells[0].get("global_batch"), cells[0].get("seq_len")
    step_s = float(np.median(steps)) if steps else None
    if step_s is None and batch and unit in ("samples", "tokens") and (unit == "samples" or length):
        step_s = batch * (length or 1.0 if unit == "tokens" else 1.0) / rate
    work = batch if batch else step_s * rate if step_s and unit != "steps" else None
    nodes = cells[0].get("nodes")
    return Point(
        devices, int(nodes) if nodes else None, rate, unit, step_s, work, cells[0].get("params_b"), len(values),
        (max(values) - min(values)) / rate if len(values) > 1 else None,
    )  # fmt: skip


def _rate(devices: int, cells: Mapping[str, float]) -> tuple[float, str]:
    for unit in ("tokens", "samples"):
        if cells.get(f"{unit}_per_s", 0) > 0:
            return cells[f"{unit}_per_s"], unit
        if cells.get(f"{unit}_per_s_per_gpu", 0) > 0:
            return cells[f"{unit}_per_s_per_gpu"] * devices, unit
    step_s = cells["step_s"]
    if cells.get("global_batch"):
        return cells["global_batch"] / step_s, "samples"
    return 1 / step_s, "steps"


def _kind(points: Sequence[Point]) -> Kind:
    """Weak: the work of a device stays; strong: the work of the job stays."""
    if len(points) < 2 or any(point.work is None for point in points):
        return "not stated"
    work = np.array([point.work for point in points], float)
    each = work / [point.devices for point in points]
    if work.max() <= 1.05 * work.min():
        return "strong"
    return "weak" if each.max() <= 1.05 * each.min() else "mixed"
