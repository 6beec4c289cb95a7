"""The figures of one machine from its own measured rows: how many times slower than predicted it computes, communicates
and launches. They scale what a machine file states (peaks and memory bandwidth, link rates, launch cost), so that every
prediction and every search on that machine uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.planner.accuracy import once_each, step_error
from meshwright.planner.validate import Judged
from meshwright.planner.validate_measured import MeasuredStep
from meshwright.predictor.step import predict

LEAST_ROWS = 10
_TERMS = {
    "compute": ("compute", "recompute", "imbalance", "bubble", "optimizer"),
    "communication": ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm"),
    "host": ("host",),
}
_SPREAD = {"compute": 0.3, "communication": 0.5, "host": 0.7}  # how far a machine usually lies from the figures, ln
_NOISE = 0.05  # how far repeated runs of one configuration lie apart, ln
_OUTLIER = 0.15  # beyond, a row counts less (Huber)
_LEAST_SHARE = 0.03  # of the steps: less than that cannot be told from noise
_SLOWEST, _FASTEST = np.log(3.0), -np.log(1.6)  # of any scale; beyond, something else than the machine is wrong
_INSIDE = 1 + 1e-9  # at an end, but for rounding
_ROUNDS = 4
_GAIN = 0.01  # what the median error has to fall by: repeated runs differ by as much

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MachineFit:
    """`scales`: times slower than predicted, by what; those of `unseen` stay 1, because too little of these rows'
    steps is spent there. Median errors of `rows` before, and of each row by a fit that never saw it (`after`)."""

    rows: int
    scales: dict[str, float]
    unseen: tuple[str, ...]
    before: float
    after: float
    device: Device
    links: tuple[Link, ...]

    @property
    def refused(self) -> str:
        """Why the fit is not to be used: it does not help rows that were left out, or a scale ended where it may go no
        farther; empty when it is."""
        ends = [name for name, scale in self.scales.items() if not _FASTEST < np.log(scale) * _INSIDE < _SLOWEST]
        if ends:
            return f"{' and '.join(ends)} would have to be scaled by more than any machine differs: look at the rows"
        if self.after > self.before - _GAIN:
            return (
                f"it does not help: median error {self.before:.1%} before, {self.after:.1%} on rows left out of the fit"
            )
        return ""


def fit_machine(judged: Sequence[Judged]) -> MachineFit | str:
    """The fit, or why there is none. Gauss-Newton on ln(predicted / measured), in which a term's share of the step is
    its derivative; a prior at 1 keeps in place what the rows do not decide."""
    rows = once_each(judged, step_error)
    if len(rows) < LEAST_ROWS:
        return f"{len(rows)} configurations have a measured step time: at least {LEAST_ROWS} are needed"
    devices = sorted({one.plan.setup.proposal.cluster.device.name for one in rows})
    if len(devices) > 1:
        return f"the rows ran on {', '.join(devices)}: a fit is of one machine"
    names = list(_TERMS)
    first = np.array([_residual_and_shares(one, {})[1] for one in rows])
    seen = [index for index in range(len(names)) if first[:, index].mean() >= _LEAST_SHARE]
    at = np.zeros(len(names))
    for _ in range(_ROUNDS):
        residuals, shares = _linear(rows, names, at)
        at = _solved(residuals, shares, at, seen)
    residuals, shares = _linear(rows, names, at)
    left_out = []
    for index, one in enumerate(rows):
        others = np.arange(len(rows)) != index
        without = _solved(residuals[others], shares[others], at, seen)
        left_out.append(abs(np.expm1(_residual_and_shares(one, _scales(names, without))[0])))
    scales = _scales(names, at)
    clusters = [one.plan.setup.proposal.cluster for one in rows]
    links = {link.name: link for cluster in clusters for link in (cluster.intra, cluster.inter)}
    unseen = tuple(name for index, name in enumerate(names) if index not in seen)
    return MachineFit(
        len(rows), scales, unseen, median(abs(one.step_error or 0.0) for one in rows), float(median(left_out)),
        scaled_device(clusters[0].device, scales),
        tuple(scaled_link(link, scales) for link in links.values()) if "communication" not in unseen else (),
    )  # fmt: skip


def _scales(names: Sequence[str], at: Floats) -> dict[str, float]:
    return {name: float(np.exp(value)) for name, value in zip(names, at, strict=True)}


def _linear(rows: Sequence[Judged], names: Sequence[str], at: Floats) -> tuple[Floats, Floats]:
    found = [_residual_and_shares(one, _scales(names, at)) for one in rows]
    return np.array([residual for residual, _ in found]), np.array([shares for _, shares in found])


def _residual_and_shares(one: Judged, scales: dict[str, float]) -> tuple[float, list[float]]:
    """ln(predicted / measured), and the share of the predicted step in each kind of term."""
    assert isinstance(one.step, MeasuredStep)
    prediction = predict(on_machine(one.plan, scales)) if scales else one.prediction
    whole = prediction.step_time_s
    shares = [sum(prediction.terms.get(term, 0.0) for term in terms) / whole for terms in _TERMS.values()]
    return float(np.log(whole / one.step.seconds)), shares


def _solved(residuals: Floats, shares: Floats, at: Floats, seen: Sequence[int]) -> Floats:
    """One step of the fit, with rows far off weighed down."""
    weight = np.minimum(1.0, _OUTLIER / np.maximum(np.abs(residuals), 1e-9)) / _NOISE**2
    slopes, prior = shares[:, seen], np.array([list(_SPREAD.values())[index] for index in seen]) ** -2.0
    left = (slopes * weight[:, None]).T @ slopes + np.diag(prior)
    right = -(slopes * weight[:, None]).T @ residuals - prior * at[seen]
    moved = at.copy()
    moved[seen] = np.clip(at[seen] + np.linalg.solve(left, right), _FASTEST, _SLOWEST)
    return moved


def on_machine(plan: Plan, scales: dict[str, float]) -> Plan:
    """The plan on a cluster whose figures are scaled."""
    proposal = plan.setup.proposal
    cluster: Cluster = replace(
        proposal.cluster, device=scaled_device(proposal.cluster.device, scales),
        intra=scaled_link(proposal.cluster.intra, scales), inter=scaled_link(proposal.cluster.inter, scales),
    )  # fmt: skip
    return replace(plan, setup=replace(plan.setup, proposal=replace(proposal, cluster=cluster)))


def scaled_device(of: Device, scales: dict[str, float]) -> Device:
    """Peaks and bandwidth divided by `compute`, the launch cost times `host`."""
    slower, launch = 1 / scales["compute"], scales["host"]
    return replace(
        of, peak_flops={dtype: _times(peak, slower) for dtype, peak in of.peak_flops.items()},
        memory_bandwidth=_times(of.memory_bandwidth, slower), launch_s=_times(of.launch_s, launch),
    )  # fmt: skip


def scaled_link(of: Link, scales: dict[str, float]) -> Link:
    """The rate divided by `communication`, the latency times it."""
    slower = scales["communication"]
    return replace(of, bytes_per_s=_times(of.bytes_per_s, 1 / slower), latency_s=_times(of.latency_s, slower))


def _times(of: Constant, factor: float) -> Constant:
    return of if factor == 1 else Constant(of.value * factor, "fitted", of.source)
