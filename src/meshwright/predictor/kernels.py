"""Seconds of single kernels on one device: matrix products, attention, element-wise work."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from meshwright.basics.figures import Constant
from meshwright.cluster import catalogue
from meshwright.cluster.device import Device
from meshwright.model.training import Precision
from meshwright.predictor import constants


@dataclass(frozen=True, slots=True)
class Speed:
    """What one device does with one precision: FLOP/s, bytes/s, and the host's cost of a kernel."""

    peak: float  # dense FLOP/s of matrix products in the recipe's precision
    attention_peak: float  # attention runs in half precision under fp8 recipes
    bandwidth: float  # bytes/s that element-wise kernels reach
    launch_s: float
    gap_s: float
    multiprocessors: int
    asynchronous: bool  # the host runs ahead of the device
    gemm_efficiency: float
    attention_efficiency: tuple[float, float]  # forward, backward


def peak_flops(device: Device, precision: Precision) -> Constant:
    """Dense FLOP/s of the device in that precision; block-scaled fp8 runs on fp8 units where it has none of its own.

    Raises InputError when the device has no units for it.
    """
    dtype = "fp8" if precision == "mxfp8" and "mxfp8" not in device.peak_flops else precision
    return catalogue.peak_flops(device, dtype)


def _multiprocessors(name: str) -> int:
    compact = name.upper().replace("-", "").replace(" ", "").removeprefix("NVIDIA").removeprefix("AMD")
    found = [key for key in constants.MULTIPROCESSORS if compact.startswith(key)]
    return constants.MULTIPROCESSORS[max(found, key=len)] if found else constants.DEFAULT_MULTIPROCESSORS


def gemm_efficiency(device: Device) -> Constant:
    """The share of its peak that the device reaches in a large product: the row with the longest matching name."""
    if device.kind == "cpu":
        return constants.GEMM_EFFICIENCY["cpu"]
    rows = [row for row in constants.GEMM_EFFICIENCY if row != "cpu" and device.name.upper().startswith(row)]
    return constants.GEMM_EFFICIENCY[max(rows, key=len)]


def speed_of(device: Device, precision: Precision) -> Speed:
    """The device's speeds with every efficiency constant applied. Raises InputError for an unknown precision."""
    half = precision if precision not in ("fp8", "mxfp8") else "bf16"
    gemm = constants.FP8_GEMM_EFFICIENCY if half != precision else gemm_efficiency(device)
    forward, backward = constants.ATTENTION_EFFICIENCY[device.kind]
    return Speed(
        peak=peak_flops(device, precision).value,
        attention_peak=peak_flops(device, half).value,
        bandwidth=device.memory_bandwidth.value * constants.MEMORY_EFFICIENCY.value,
        launch_s=device.launch_s.value,
        gap_s=constants.KERNEL_GAP_S[device.kind].value,
        multiprocessors=_multiprocessors(device.name) if device.kind == "gpu" else 1,
        asynchronous=device.kind == "gpu",
        gemm_efficiency=gemm.value,
        attention_efficiency=(forward.value, backward.value),
    )


@lru_cache(maxsize=8192)
def filled(m: int, n: int, multiprocessors: int) -> float:
    """Share of the best throughput that the tiles of an [m, n] result reach: whole tiles, whole waves.

    The best tile is taken, as libraries do. 1 on a CPU, whose blocks are small.
    """
    if multiprocessors == 1:
        return 1.0
    best = 0.0
    for rows, columns, relative in constants.TILES:
        tiles = ceil(m / rows) * ceil(n / columns)
        waves = ceil(tiles / multiprocessors)
        best = max(best, relative * m * n / (waves * multiprocessors * rows * columns))
    return best


def gemm_s(speed: Speed, m: int, n: int, k: int, value_bytes: float, copies: int = 1) -> float:
    """Seconds of `copies` products [m, k] × [k, n] launched together: the slower of arithmetic and memory.

    `copies` (the experts of a grouped product) fill the device together.
    """
    if min(m, n, k) <= 0:
        return 0.0
    shape = filled(m * copies, n, speed.multiprocessors) * k / (k + constants.DEPTH_HALF.value)
    arithmetic = 2.0 * m * n * k * copies / (speed.peak * speed.gemm_efficiency * shape)
    moved = value_bytes * copies * (m * k + k * n + m * n) / speed.bandwidth
    return max(arithmetic, moved)
