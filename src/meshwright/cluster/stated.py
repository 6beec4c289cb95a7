"""Figures of a device that the user states, over the catalogue's or for a device that it lacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.figures import Constant
from meshwright.basics.names import nearest
from meshwright.basics.quantities import GIB
from meshwright.cluster.catalogue import STATED, twice_the_peak, unlisted
from meshwright.cluster.device import Device

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "mxfp4")
_TOLERANCE = 0.02  # data sheets round: 1979 for 2 x 989.4

Spelling = Callable[[str], str]
"""How a key is written in the user's file: `peak_tflops` gives "cluster.peak_tflops"."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What a job says about a device: TFLOP/s by dtype, GB/s, GiB."""

    peak_tflops: Mapping[str, float] | None = None
    bandwidth_gb: float | None = None
    memory_gib: float | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The keys that a device outside the catalogue still needs."""
        return tuple(key for key in ("memory_gib", "peak_tflops", "bandwidth_gb") if not getattr(self, key))


def peak_complaints(
    name: str, dense: Mapping[str, Constant], peaks: Mapping[str, float], field: str
) -> list[Complaint]:
    """What is wrong with stated peaks (TFLOP/s by dtype): a dtype that nobody knows, or twice the dense figure."""
    out = []
    for dtype, tflops in peaks.items():
        where = f"{field}.{dtype}"
        if dtype not in DTYPES:
            near = nearest(dtype, DTYPES)
            listed = ", ".join(DTYPES)
            legal = f"did you mean {near!r}? known: {listed}" if near else f"known: {listed}"
            out.append(Complaint(where, f"{tflops:g}", "unknown dtype", legal))
        elif dtype in dense and twice_the_peak(name):
            right = dense[dtype].value / 1e12
            if abs(tflops / (2 * right) - 1) < _TOLERANCE:
                rule = f"is twice the dense peak of {name}: {twice_the_peak(name)}; training is dense"
                out.append(Complaint(where, f"{tflops:g}", rule, f"{right:g}, or leave it out"))
    return out


def with_figures(of: Device, given: Stated, spelled: Spelling) -> Device:
    """The device with the stated peaks and bandwidth in place of its own. A stated memory is not the device's: it is
    what a rank may use. Raises InputError with every complaint about a peak."""
    peaks = given.peak_tflops or {}
    complaints = peak_complaints(of.name, of.peak_flops, peaks, spelled("peak_tflops"))
    if complaints:
        raise InputError(tuple(complaints))
    changed = of if not peaks else replace(of, peak_flops={**of.peak_flops, **_constants(peaks)})
    if given.bandwidth_gb is None:
        return changed
    return replace(changed, memory_bandwidth=Constant(given.bandwidth_gb * 1e9, "data sheet", STATED))


def from_figures(name: str, given: Stated, spelled: Spelling) -> Device:
    """A device that the catalogue lacks. Raises InputError for unknown dtypes and missing figures."""
    complaints = [Complaint(spelled(key), "", f"is required for {name!r}") for key in given.missing]
    complaints += peak_complaints(name, {}, given.peak_tflops or {}, spelled("peak_tflops"))
    if complaints or given.memory_gib is None or given.bandwidth_gb is None or given.peak_tflops is None:
        raise InputError(tuple(complaints))
    bandwidth = Constant(given.bandwidth_gb * 1e9, "data sheet", STATED)
    return unlisted(name, round(given.memory_gib * GIB), _constants(given.peak_tflops), bandwidth)


def _constants(peaks: Mapping[str, float]) -> dict[str, Constant]:
    return {dtype: Constant(tflops * 1e12, "data sheet", STATED) for dtype, tflops in peaks.items()}
