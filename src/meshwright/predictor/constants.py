"""Every constant of the predictor that is not a property of one device or link, each with its origin.

Nothing is hidden in the formulas: what is guessed is called guessed, here and in the prediction that used it.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.basics.figures import Constant

FITTED: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("fitted.toml").read_text(encoding="utf-8"))
"""What `bench/fit_constants.py` found: [constants], and [stacks] with knobs of software stacks."""


def _constant(name: str, guess: float, source: str) -> Constant:
    """The fitted value, where the fit has one, else the guess."""
    if name in FITTED["constants"]:
        return Constant(FITTED["constants"][name], "fitted", f"{FITTED['source']}; before: {source}")
    return Constant(guess, "guessed", source)


_PAPER_FLASH = "Dao 2023, FlashAttention-2, figures 4-6: the A100 and H100 bars"
_PRODUCTS = "median of published matrix products (SimuMax configs/system: A100 PCIe, B200)"

GEMM_EFFICIENCY: dict[str, Constant] = {
    "V100": _constant("gemm_efficiency.V100", 0.74, "as A100"),
    "A100": _constant("gemm_efficiency.A100", 0.76, _PRODUCTS),
    "A800": _constant("gemm_efficiency.A100", 0.76, _PRODUCTS),
    "H": _constant("gemm_efficiency.H", 0.70, "between the generations: power limits the clock under load"),
    "B": _constant("gemm_efficiency.B", 0.50, _PRODUCTS),
    "B300": _constant("gemm_efficiency.B300", 0.53, "as B200, with a higher power limit"),
    "GB": _constant("gemm_efficiency.GB", 0.53, "as B200, with a higher power limit"),
    "GB300": _constant("gemm_efficiency.GB300", 0.60, "as GB200, with a higher power limit"),
    "MI": Constant(0.50, "guessed", "published roofline shares of CDNA 3 boards"),
    "cpu": Constant(0.70, "guessed", "share of a core's peak that a well-blocked product reaches"),
    "": Constant(0.70, "guessed", "no product measured on this device is known to us"),
}
"""Share of the dense half-precision peak in a large matrix product whose tiles fill the device, under sustained load,
by the beginning of its name."""

QUANTISED_EFFICIENCY: dict[str, Constant] = {
    "fp8": _constant("quantised_efficiency.fp8", 0.90, "less of the peak: the same power at twice the rate"),
    "mxfp8": _constant("quantised_efficiency.mxfp8", 0.85, "as fp8, with a scale for each 32 values"),
    "nvfp4": _constant("quantised_efficiency.nvfp4", 0.65, "some products stay in higher precision"),
}
"""The same share in products of quantised values, over that in half precision."""

TILES: tuple[tuple[int, int, float], ...] = ((256, 128, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.65))
"""Output tiles a library chooses from and the share of the best throughput each reaches (near the published products of
the A100)."""

UNALIGNED = Constant(
    0.69, "measured", "a SwiGLU network of width 10,922 against 10,944 on H100 (stas00/ml-engineering)"
)
"""Throughput of products with a side that is no multiple of 8."""

UNALIGNED_HEADS = Constant(0.1, "fitted", "BLOOM chronicles: heads of 108 and 150 against 104, 112 and 144, not fused")
"""The same of batched products of single heads: without matrix units."""

WAVES = Constant(0.3, "fitted", "published products: 0.5 on the A100, 0 on the B200, whose libraries split more work")
"""Share of the work in which a last, partly filled wave of tiles takes as long as a whole one."""

DEPTH_HALF = Constant(125.0, "fitted", "published products: 132 on the A100, 121 on the B200")
"""Prologue and epilogue of a tile cost as much as this many steps of K."""

GROUP_S = Constant(9e-6, "fitted", "published grouped products of the B200 with 128 to 256 experts")
"""The least time of one product in a group."""

MULTIPROCESSORS: Mapping[str, int] = {
    "V100": 80, "T4": 40, "A10": 72, "A100": 108, "A800": 108, "A6000": 84, "RTX3090": 82, "RTX4090": 128,
    "L4": 58, "L40": 142, "H100": 132, "H800": 132, "H200": 132, "GH200": 132, "B200": 148, "GB200": 148,
    "B300": 160, "GB300": 160, "MI250": 208, "MI300": 304, "MI325": 304, "MI355": 256,
}  # fmt: skip
"""Units that work on tiles in parallel, from the makers' data sheets, by the beginning of the device's name."""

DEFAULT_MULTIPROCESSORS = 108

_ATTENTION = "published attention kernels (SimuMax configs/system: A100 PCIe, B200), 4 to 128 heads"
ATTENTION_EFFICIENCY: dict[str, tuple[Constant, Constant]] = {
    "V": (Constant(0.30, "guessed", "before FlashAttention"), Constant(0.25, "guessed", "before FlashAttention")),
    "A": (Constant(0.62, "fitted", _ATTENTION), Constant(0.50, "fitted", _ATTENTION)),
    "H": (Constant(0.60, "guessed", "FlashAttention-3, figure 5"), Constant(0.48, "guessed", "FlashAttention-3")),
    "B": (Constant(0.58, "fitted", _ATTENTION), Constant(0.42, "fitted", _ATTENTION)),
    "GB": (Constant(0.58, "fitted", _ATTENTION), Constant(0.42, "fitted", _ATTENTION)),
    "GB300": (Constant(0.66, "guessed", "as B200, with twice the exponentials"), Constant(0.46, "guessed", "likewise")),
    "B300": (Constant(0.66, "guessed", "as B200, with twice the exponentials"), Constant(0.46, "guessed", "likewise")),
    "MI": (Constant(0.45, "guessed", "below the others in published training"), Constant(0.35, "guessed", "likewise")),
    "cpu": (Constant(0.40, "guessed", "softmax is not a matrix product"), Constant(0.40, "guessed", "as forward")),
    "": (Constant(0.50, "guessed", _PAPER_FLASH), Constant(0.40, "guessed", _PAPER_FLASH)),
}
"""Share of the half-precision peak in fused causal attention over many heads, forward and backward, by the beginning of
the device's name."""

ATTENTION_FILL = (2.0, 0.5)
"""Blocks of 128 queries for each multiprocessor at which attention reaches half of that, forward and backward (between
the published kernels of A100, 1.4 and 0.5, and B200, 4 and 0.4)."""

NARROW_HEAD = Constant(0.6, "guessed", "FlashAttention-2, figures 4-6: heads of 64 reach 80 % of those of 128")

ATTENTION_BACKWARD_FACTOR = Constant(2.5, "data sheet", "Dao 2022: five products against two, scores recomputed")

LOSS = _constant("loss", 2.5, "cast, maximum, exponential, sum, division and their gradient, partly fused")
"""How often a forward loss moves the `logit_bytes` that it keeps of each score at the peak; half of that backward."""

UNTUNED = {
    "products": _constant("untuned.products", 0.88, "kernels on a device that came after the software"),
    "attention": _constant("untuned.attention", 0.65, "the same: written for the generation before"),
}
"""Throughput of products and of attention on devices newer than those that a software stack was tuned for."""

MEMORY_EFFICIENCY = _constant("memory_efficiency", 0.80, "share of the bandwidth that element-wise kernels reach")

KERNEL_GAP_S: Mapping[str, Constant] = {
    "gpu": Constant(1.5e-6, "guessed", "ramp-up and drain of one kernel on the device"),
    "cpu": Constant(0.0, "guessed", "on a CPU the launch cost holds everything"),
}

FORWARD_KERNELS: Mapping[str, Constant] = {
    "embed": Constant(2, "guessed", "look-up, cast"),
    "attn": Constant(9.5, "guessed", "as ffn: what the host loses in one half of a layer it makes up in the other"),
    "ffn": Constant(9.5, "guessed", "half of: two norms, seven products, positions, attention, activation, residuals"),
    "layer": Constant(18, "guessed", "both halves, one norm"),
    "head": Constant(8, "guessed", "norm, product, cast, log-softmax, loss"),
}
SOFTMAX_KERNELS = Constant(6, "guessed", "scale, mask, casts to fp32 and back beside a softmax that is not fused")
SOFTMAX_TRAFFIC = (29.0, 39.0)
"""Bytes a score that these read and write beyond the fused kernel, forward and backward: in fp32, as Megatron's
`forward_torch_softmax` does."""
EXPERT_KERNELS = _constant("expert_kernels", 30, "router, permutation, weighted sum")
EACH_EXPERT_KERNELS = _constant("each_expert_kernels", 8, "products and casts of each expert that a rank holds")
PERMUTED = _constant("permuted", 6, "copies sorted, sent on, received, sorted back and summed")
"""Reads and writes of each copy of a token around the experts, forward."""
SCAN = _constant("scan", 40, "convolution, chunked scan in fp32 and gated norm, in kernels far from the memory's speed")
"""Reads and writes of each inner value of a state-space block, forward."""

BACKWARD_KERNELS_FACTOR = Constant(1.6, "guessed", "two kernels for each of the forward's")

CONTENTION = Constant(0.13, "guessed", "Galvatron's shipped profile: compute 1.13 times slower meanwhile")
"""Share of hidden communication that compute loses to it: it takes multiprocessors and memory bandwidth."""

SCORES_TRAFFIC = _constant("scores_traffic", 0.8, "scores written and read by the next kernel; caches hold some")
"""Share of the traffic of attention scores, out of single kernels, that reaches the memory."""

SELECTIVE_SHARE = Constant(0.3, "guessed", "of a forward: what selective recompute repeats, measured in another mode")

STEP_HOST_S = Constant(1e-3, "guessed", "data, logging, the optimizer's own Python, a step")

GRAPHED = Constant(0.15, "guessed", "share of the host's work that remains when kernels are replayed as a CUDA graph")

COLLECTIVE_EFFICIENCY: dict[str, Constant] = {
    "intra": _constant("collective_efficiency.intra", 0.80, "bus bandwidth over the link's rate: A100 0.78, H200 0.81"),
    "inter": _constant("collective_efficiency.inter", 0.85, "the same between nodes: B200 with 400 Gb/s a device 0.95"),
    "all-to-all": _constant("collective_efficiency.all_to_all", 0.70, "B200 0.60, DeepEP on H800 0.77"),
}
COLLECTIVE_LAUNCH_S = Constant(8e-6, "guessed", "one collective: launch and rendezvous")

RAMP_BYTES = Constant(1e8, "fitted", "published all-reduces by size on nodes of A100 and B200 (stas00/ml-engineering)")
RAMP = {
    "intra": Constant(0.5, "fitted", "the same: 1.4 to 1.5 times slower from 8 to 64 MB"),
    "inter": Constant(1.0, "fitted", "the same between four nodes, through EFA: 2.4 times at 64 MB, 1.7 at 256 MB"),
}
"""A message of n bytes moves 1 + RAMP / (1 + n / RAMP_BYTES) times slower than the largest."""

RESOLUTION = Constant(0.02, "guessed", "two plans closer than this are told apart by repeated runs at best")
"""Plans whose steps differ by no more than this share count as equally fast: the plainer one ranks first."""
