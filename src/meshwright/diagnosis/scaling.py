"""Throughput tables: efficiency, what stops it, readings that cannot be, and the bandwidth a slow job implies."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.scaling_model import low_use
from meshwright.diagnosis.scaling_points import Point, Series, read_series
from meshwright.diagnosis.thresholds import IMPOSSIBLE, POOR
from meshwright.files.findings import Finding
from meshwright.files.setup import Setup

_FEW = 3  # repeats without which a difference has no spread


def diagnose_throughput(paths: Sequence[Path], setup: Setup | None) -> Said:
    """What throughput tables say; with a job, also the use of the devices. Raises InputError for unusable tables."""
    tables: dict[str, object] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    for path in paths:
        series, said = read_series(path)
        notes += said
        tables[str(path)] = [_figures(one) for one in series]
        if len(series) > 1:
            findings.append(_mixed(path, series))
        for one in series:
            findings += _judged(path, one, setup, notes)
        if all(point.repeats < _FEW for one in series for point in one.points):
            notes.append(
                f"{path.name}: fewer than {_FEW} repeats of every size: differences of a few percent are noise"
            )
    return Said(
        counted(len(tables), "throughput table"), tables=tables, findings=tuple(findings), abstained=tuple(notes)
    )


def _figures(series: Series) -> dict[str, object]:
    best = max(series.points, key=lambda point: point.rate)
    return {
        "hardware": series.hardware or "not stated", "scaling": series.kind, "best_devices": best.devices,
        "fit": _fit(series),
        "points": [
            {
                "devices": point.devices, "nodes": point.nodes, f"{point.unit}_per_s": point.rate,
                f"{point.unit}_per_s_per_device": point.per_device, "efficiency": series.efficiency(point),
                "speed_up": point.rate / series.points[0].rate, "step_s": point.step_s, "repeats": point.repeats,
                "spread": point.spread,
            }
            for point in series.points
        ],
    }  # fmt: skip


def _fit(series: Series) -> dict[str, float] | None:
    """T = a + b · x, T the time a device takes for its work over that at the smallest size, x = 2(n-1)/n, what a ring
    over n nodes sends of each byte. None without nodes, or with fewer than two different x."""
    points = series.points
    nodes = [_nodes(point) for point in points]
    if any(n is None for n in nodes) or len(set(nodes)) < 2:
        return None
    x = np.array([2 * (n - 1) / n for n in nodes if n])
    time = np.array([points[0].per_device / point.per_device for point in points])
    design = np.column_stack([np.ones_like(x), x])
    (a, b), *_ = np.linalg.lstsq(design, time, rcond=None)
    return {"a": float(a), "b": float(b), "largest_residual": float(np.abs(design @ [a, b] - time).max())}


def _nodes(point: Point) -> int | None:
    return point.nodes if point.nodes is not None else 1 if point.devices == 1 else None


def _judged(path: Path, series: Series, setup: Setup | None, notes: list[str]) -> list[Finding]:
    found = [finding for point in series.points if (finding := low_use(path, series, point, setup, notes))]
    found = sorted(found, key=lambda finding: finding.evidence["devices"], reverse=True)[:1]  # type: ignore[arg-type, return-value]
    if len(series.points) < 2:
        notes.append(f"{path.name}: one size only: scaling cannot be judged")
        return found
    if series.kind == "mixed" and len({point.unit for point in series.points}) == 1:
        notes.append(
            f"{path.name}: neither the work of a device nor that of the job stays the same: rates are compared, which "
            "is fair only where a sample costs the same at every size"
        )
    if series.kind == "not stated":
        notes.append(f"{path.name}: no global batch: weak and strong scaling cannot be told apart")
    if len({point.unit for point in series.points}) > 1:
        notes.append(f"{path.name}: rates of different units cannot be compared")
        return found
    if len({point.params_b for point in series.points}) > 1:
        notes.append(f"{path.name}: models of different size: efficiency is of rates times parameters")
    if all(point.unit == "steps" for point in series.points):
        notes.append(f"{path.name}: step times without a batch: read as equal work a device (weak scaling)")
        series = _weak(series)
    series = _by_parameters(series)
    above = [point for point in series.points if series.efficiency(point) > IMPOSSIBLE]
    if above:
        return [*found, _impossible(path, series, max(above, key=series.efficiency))]
    last = max(series.points, key=lambda point: point.devices)
    if series.efficiency(last) >= POOR:
        return found
    return [*found, _poor(path, series, last)]


def _weak(series: Series) -> Series:
    return replace(series, points=tuple(replace(p, rate=p.rate * p.devices) for p in series.points))


def _by_parameters(series: Series) -> Series:
    """Work counted as tokens (or samples) times parameters, where sizes of model differ and are all known."""
    sizes = [point.params_b for point in series.points]
    if len(set(sizes)) < 2 or any(size is None for size in sizes):
        return series
    return replace(series, points=tuple(replace(p, rate=p.rate * (p.params_b or 1.0)) for p in series.points))


def _mixed(path: Path, series: Sequence[Series]) -> Finding:
    names = [one.hardware or "not stated" for one in series]
    return _finding(
        "mixed hardware",
        f"the table holds {len(series)} kinds of hardware or software ({'; '.join(names)}): rates across them are not "
        "compared, each is judged alone",
        {"file": str(path), "kinds": names}, None, None, "high",
        "repeat the sizes on one kind of hardware with one version of the software",
    )  # fmt: skip


def _impossible(path: Path, series: Series, point: Point) -> Finding:
    efficiency, first = series.efficiency(point), series.points[0]
    return _finding(
        "impossible reading",
        f"{point.devices} devices give {efficiency:.0%} of the rate a device has among {first.devices}: devices do not "
        "get faster by being more. Other hardware or software, another batch or model, a rate a device in one row and "
        "of the job in another, or a cold start in the smaller run",
        {"file": str(path), "devices": point.devices, "efficiency": efficiency, "threshold": IMPOSSIBLE},
        None, None, "high", "state gpu, link, software and global_batch in the table, and repeat the smallest size",
    )  # fmt: skip


def _poor(path: Path, series: Series, last: Point) -> Finding:
    first = series.points[0]
    best = max(series.points, key=lambda point: point.rate)
    efficiency, speed_up = series.efficiency(last), last.rate / first.rate
    crossing = _crossing(series)
    evidence: dict[str, object] = {
        "file": str(path), "devices": last.devices, "efficiency": efficiency, "speed_up": speed_up,
        "best_devices": best.devices, "scaling": series.kind,
        "efficiencies": {point.devices: series.efficiency(point) for point in series.points},
        "totals": {point.devices: point.rate for point in series.points}, "fit": _fit(series),
    }  # fmt: skip
    lost = (
        f"{last.devices} devices do {speed_up:.2f} times the work of {first.devices}, an efficiency of {efficiency:.1%}"
    )
    cost = None if last.step_s is None else last.step_s * (1 - efficiency)
    share = 1 - efficiency
    test = f"run {first.devices} devices in one node, then as many spread over two; compare the step times"
    if crossing is not None:
        before, after, times = crossing
        evidence["time_ratio_at_first_crossing"] = times
        per_node = before.devices // (_nodes(before) or 1)
        world, nodes = after.devices, _nodes(after) or 1
        evidence["bytes_per_parameter_over_a_node_link"] = {
            "sharded over all": 3 * 2 * (world - 1) / world, "sharded in the node": 2 * 2 * (nodes - 1) / nodes,
        }  # fmt: skip
        negative = best.devices < last.devices
        kind = "negative scaling" if negative else "slow link between nodes"
        remedy = (
            f"{best.devices} devices are best until the link is mended"
            if negative
            else f"shard inside the node ({per_node} devices) and replicate across, if the exchange is exposed"
        )
        return _finding(
            kind,
            f"{lost}; a step takes {times:.2f} times as long as soon as it leaves the node ({before.devices} to "
            f"{after.devices} devices), so latency or bandwidth between nodes is the cause, not imbalance; {remedy}",
            evidence, cost, share, "medium", test.replace(str(first.devices), str(min(2, per_node)), 1),
        )  # fmt: skip
    if series.kind == "strong" and speed_up < 1.5:
        return _finding(
            "too little work per device",
            f"{lost} on the same total batch: a device's part is too small for its overheads",
            evidence, cost, share, "medium",
            f"use {best.devices} devices, or grow the global batch or the model with their number",
        )  # fmt: skip
    if best.devices < last.devices:
        return _finding(
            "negative scaling", f"{lost}: adding devices makes the job slower in total; {best.devices} are best",
            evidence, cost, share, "medium", test,
        )  # fmt: skip
    return _finding(
        "poor scaling", f"{lost}; the table does not say whether nodes are crossed, nor what they wait for", evidence,
        cost, share, "low", "diagnose a trace of the largest size; add nodes to the table",
    )  # fmt: skip


def _crossing(series: Series) -> tuple[Point, Point, float] | None:
    """The step from one node to more, where it loses: (before, after, time of a device's work after over before)."""
    inside = [point for point in series.points if _nodes(point) == 1]
    outside = [point for point in series.points if (_nodes(point) or 0) > 1]
    if not inside or not outside or series.kind == "strong":
        return None
    before, after = inside[-1], outside[0]
    times = before.per_device / after.per_device
    return (before, after, times) if times > 1.05 else None


def _finding(
    kind: str, cause: str, evidence: dict[str, object], cost: float | None, share: float | None,
    confidence: str, verify: str,
) -> Finding:  # fmt: skip
    return Finding(
        kind=kind, ranks=(), stages=(), cause=cause, evidence=evidence, cost_s_per_step=cost, share=share,
        confidence=confidence, change={}, predicted_gain=None, verify=verify,  # type: ignore[arg-type]
    )  # fmt: skip
