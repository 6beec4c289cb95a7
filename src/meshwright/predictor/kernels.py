"""Seconds of single kernels on one device: matrix products, attention, element-wise work."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from meshwright.basics.figures import Constant
from meshwright.cluster import catalogue
from meshwright.cluster.device import Device
from meshwright.model.training import Precision
from meshwright.predictor import constants
from meshwright.predictor.stacks import Stack

_SLICES = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Bytes of a value that a product reads in quantised form, scales included."""

_CASTS = {name: 2.0 + 2 * size + (4.0 if name == "nvfp4" else 0.0) for name, size in _SLICES.items()}
"""Bytes that casting a value moves: read once, written by rows and by columns; for nvfp4 also read for the scale of the
tensor and rotated (Hadamard)."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What one device does in one precision under one software stack: FLOP/s, bytes/s, the host's cost of a kernel."""

    peak: float  # dense FLOP/s of matrix products in the recipe's precision
    half_peak: float  # attention and what is not quantised run in half precision under 8-bit and 4-bit recipes
    bandwidth: float  # bytes/s that element-wise kernels reach
    launch_s: float
    gap_s: float
    multiprocessors: int
    asynchronous: bool  # the host runs ahead of the device
    gemm_efficiency: float
    half_efficiency: float  # of products in half precision
    attention_efficiency: tuple[float, float]  # forward, backward
    group_s: float  # the least time of one product in a group (an expert's)
    quantised: float  # bytes of a value in quantised form; 0: products read half precision as it is
    cast: float  # bytes that casting a value moves: read, written by rows and by columns; 0 likewise
    half_experts: bool  # products of experts are not quantised
    passes: float  # traffic of element-wise work over that of fused kernels
    scores_bytes: float  # bytes kept of each attention score; 0: a fused attention kernel
    beside: float  # share of the dispatch to experts that runs beside other work
    logit_bytes: float  # bytes of one output score at the peak of the loss, times what its kernels waste


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


def _family(device: Device, rows: dict[str, Constant] | dict[str, tuple[Constant, Constant]]) -> str:
    """The row of a table by family of devices: the longest that the device's name begins with."""
    if device.kind == "cpu":
        return "cpu"
    return max((row for row in rows if row != "cpu" and device.name.upper().startswith(row)), key=len)


def gemm_efficiency(device: Device) -> Constant:
    """The share of its half-precision peak that the device reaches in a large product."""
    return constants.GEMM_EFFICIENCY[_family(device, constants.GEMM_EFFICIENCY)]


def attention_efficiency(device: Device) -> tuple[Constant, Constant]:
    """The share of its half-precision peak that fused attention reaches on many heads, forward and backward."""
    return constants.ATTENTION_EFFICIENCY[_family(device, constants.ATTENTION_EFFICIENCY)]


_GENERATIONS = ("V", "A", "H", "B")


def _newer(device: Device, tuned_for: str) -> bool:
    """Is the device of a later generation than the one named? False where either has no generation here."""
    name = device.name.upper().removeprefix("G")
    if not tuned_for or name[:1] not in _GENERATIONS:
        return False
    return _GENERATIONS.index(name[:1]) > _GENERATIONS.index(tuned_for)


def speed_of(device: Device, precision: Precision, stack: Stack | None = None) -> Speed:
    """The device's speeds with every efficiency constant applied; those of a GPU under the habits of a software stack.
    Raises InputError for a precision that the device has no units for."""
    habits = stack if stack is not None and device.kind == "gpu" else Stack("plain", "")
    half: Precision = "bf16" if precision in _SLICES else precision
    newer = _newer(device, habits.tuned_for)
    products = habits.products * (constants.UNTUNED["products"].value if newer else 1.0)
    attention = habits.attention * (constants.UNTUNED["attention"].value if newer else 1.0)
    efficiency = gemm_efficiency(device).value * products
    quantised = constants.QUANTISED_EFFICIENCY[precision].value if precision in _SLICES else 1.0
    forward, backward = attention_efficiency(device)
    hosted = 1 - habits.graphs * (1 - constants.GRAPHED.value)
    return Speed(
        peak=peak_flops(device, precision).value,
        half_peak=peak_flops(device, half).value,
        bandwidth=device.memory_bandwidth.value * constants.MEMORY_EFFICIENCY.value,
        launch_s=device.launch_s.value * habits.host * hosted,
        gap_s=constants.KERNEL_GAP_S[device.kind].value,
        multiprocessors=_multiprocessors(device.name) if device.kind == "gpu" else 1,
        asynchronous=device.kind == "gpu",
        gemm_efficiency=efficiency * quantised,
        half_efficiency=efficiency,
        attention_efficiency=(forward.value * attention, backward.value * attention),
        group_s=constants.GROUP_S.value if device.kind == "gpu" else 0.0,
        quantised=_SLICES.get(precision, 0.0),
        cast=_CASTS.get(precision, 0.0),
        half_experts=habits.half_experts,
        passes=habits.passes,
        scores_bytes=habits.scores_bytes,
        beside=habits.ep_overlap,
        logit_bytes=habits.logit_bytes * habits.loss,
    )


@lru_cache(maxsize=16384)
def filled(m: int, n: int, multiprocessors: int, copies: int = 1) -> float:
    """Share of the best throughput that the tiles of `copies` results [m, n] reach: whole tiles, and waves of them of
    which the last one is partly filled by what the libraries split off. The best tile is taken, as libraries do. 1 on a
    CPU, whose blocks are small."""
    if multiprocessors == 1:
        return 1.0
    best = 0.0
    for rows, columns, relative in constants.TILES:
        waves = ceil(m / rows) * ceil(n / columns) * copies / multiprocessors
        waves = constants.WAVES.value * ceil(waves) + (1 - constants.WAVES.value) * max(waves, 1.0)
        best = max(best, relative * m * n * copies / (waves * multiprocessors * rows * columns))
    return best


def gemm_s(
    speed: Speed, m: int, n: int, k: int, value_bytes: float, copies: int = 1, result_bytes: float | None = None,
    half: bool = False,
) -> float:  # fmt: skip
    """Seconds of `copies` products [m, k] × [k, n] launched together: the slower of arithmetic and memory, and for a
    group (of experts) at least what starting each takes.

    `result_bytes` of traffic for each value of the result (`value_bytes` where not given); `half`: not quantised.
    """
    if min(m, n, k) <= 0:
        return 0.0
    shape = filled(m, n, speed.multiprocessors, copies) * k / (k + constants.DEPTH_HALF.value)
    rate = speed.half_peak * speed.half_efficiency if half else speed.peak * speed.gemm_efficiency
    if (m | n | k) & 7 and speed.multiprocessors > 1:
        rate *= constants.UNALIGNED.value
    arithmetic = 2.0 * m * n * k * copies / (rate * shape)
    read = speed.quantised if speed.quantised and not half else value_bytes
    moved = copies * (read * (m * k + k * n) + (result_bytes or value_bytes) * m * n) / speed.bandwidth
    return max(arithmetic, moved, copies * speed.group_s if copies > 1 else 0.0)


def fused_attention_s(speed: Speed, flops: float, blocks: float, width: int) -> tuple[float, float]:
    """Seconds of the fused attention, forward and backward, of so many forward FLOPs in `blocks` of 128 queries of one
    head: few blocks leave the device idle, and narrow heads feed the matrix units badly."""
    core = flops / speed.half_peak
    shape = min(1.0, constants.NARROW_HEAD.value + (1 - constants.NARROW_HEAD.value) * width / 128)
    busy = speed.multiprocessors if speed.multiprocessors > 1 else 0
    forward = blocks / (blocks + constants.ATTENTION_FILL[0] * busy) * shape * speed.attention_efficiency[0]
    backward = blocks / (blocks + constants.ATTENTION_FILL[1] * busy) * shape * speed.attention_efficiency[1]
    return core / forward, core * constants.ATTENTION_BACKWARD_FACTOR.value / backward


def plain_attention_s(speed: Speed, heads: float, queries: int, keys: float, width: int) -> tuple[float, float]:
    """Seconds of attention out of single kernels, forward and backward: the scores of every pair, masked ones too, are
    written and read by each kernel (product, softmax, dropout, product), in half precision with a byte a mask."""
    scores = heads * queries * keys
    rate = speed.half_peak * speed.half_efficiency  # what short depths lose is the traffic, counted apart
    if width % 8 and speed.multiprocessors > 1:
        rate *= constants.UNALIGNED_HEADS.value
    dropped = speed.scores_bytes > 2
    reached = constants.SCORES_TRAFFIC.value / speed.bandwidth
    forward = scores * ((13.0 if dropped else 8.0) * reached + 4.0 * width / rate)
    return forward, scores * ((21.0 if dropped else 14.0) * reached + 8.0 * width / rate)
