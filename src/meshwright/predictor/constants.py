"""Every constant of the predictor that is not a property of one device or link, each with its origin.

Nothing is hidden in the formulas: what is guessed is called guessed, here and in the prediction that used it.
"""

from collections.abc import Mapping

from meshwright.basics.figures import Constant

_PAPER_FLASH = "Dao 2023, FlashAttention-2, figures 4-6: the A100 and H100 bars"
_PRODUCTS = "near the median of published matrix products (SimuMax configs/system: A100 PCIe, B200); no fit yet"

GEMM_EFFICIENCY: Mapping[str, Constant] = {
    "A100": Constant(0.76, "guessed", _PRODUCTS),
    "A800": Constant(0.76, "guessed", _PRODUCTS),
    "H": Constant(0.70, "guessed", "between the generations before and after: power limits the clock under load"),
    "B": Constant(0.52, "guessed", _PRODUCTS),
    "GB": Constant(0.58, "guessed", "as B200, with a higher power limit"),
    "MI": Constant(0.50, "guessed", "published roofline shares of CDNA 3 boards"),
    "cpu": Constant(0.70, "guessed", "share of a core's peak that a well-blocked product reaches"),
    "": Constant(0.70, "guessed", "no product measured on this device is known to us"),
}
"""Share of the dense peak in a large matrix product whose tiles fill the device, by the beginning of its name."""

FP8_GEMM_EFFICIENCY = Constant(0.60, "guessed", "quantisation and scaling kernels ride along with each product")

TILES: tuple[tuple[int, int, float], ...] = ((256, 128, 1.0), (128, 128, 0.97), (128, 64, 0.85), (64, 64, 0.65))
"""Output tiles a library chooses from and the share of the best throughput each reaches (guessed)."""

DEPTH_HALF = Constant(60.0, "guessed", "prologue and epilogue of a tile cost as much as this many steps of K")

MULTIPROCESSORS: Mapping[str, int] = {
    "V100": 80, "T4": 40, "A10": 72, "A100": 108, "A800": 108, "A6000": 84, "RTX3090": 82, "RTX4090": 128,
    "L4": 58, "L40": 142, "H100": 132, "H800": 132, "H200": 132, "GH200": 132, "B200": 148, "GB200": 148,
    "B300": 160, "GB300": 160, "MI250": 208, "MI300": 304, "MI325": 304, "MI355": 256,
}  # fmt: skip
"""Units that work on tiles in parallel, from the makers' data sheets, by the beginning of the device's name."""

DEFAULT_MULTIPROCESSORS = 108

ATTENTION_EFFICIENCY: Mapping[str, tuple[Constant, Constant]] = {
    "gpu": (Constant(0.55, "guessed", _PAPER_FLASH), Constant(0.45, "guessed", _PAPER_FLASH)),
    "cpu": (Constant(0.40, "guessed", "softmax is not a matrix product"), Constant(0.40, "guessed", "as forward")),
}
"""Share of the peak in the fused attention, forward and backward."""

ATTENTION_BACKWARD_FACTOR = Constant(2.5, "data sheet", "Dao 2022: five products against two, scores recomputed")

MEMORY_EFFICIENCY = Constant(0.80, "guessed", "share of the memory bandwidth that element-wise kernels reach")

KERNEL_GAP_S: Mapping[str, Constant] = {
    "gpu": Constant(1.5e-6, "guessed", "ramp-up and drain of one kernel on the device"),
    "cpu": Constant(0.0, "guessed", "on a CPU the launch cost holds everything"),
}

FORWARD_KERNELS: Mapping[str, Constant] = {
    "embed": Constant(2, "guessed", "look-up, cast"),
    "attn": Constant(12, "guessed", "norm, three products, positions, attention, product, residual"),
    "ffn": Constant(7, "guessed", "norm, three products, activation, product of halves, residual"),
    "layer": Constant(18, "guessed", "both halves, one norm"),
    "head": Constant(8, "guessed", "norm, product, cast, log-softmax, loss"),
}
EXPERT_KERNELS = Constant(12, "guessed", "router, permutation, grouped products, weighted sum")
BACKWARD_KERNELS_FACTOR = Constant(2.0, "guessed", "two kernels for each of the forward's")

CONTENTION = Constant(0.13, "guessed", "Galvatron's shipped profile: compute 1.13 times slower meanwhile")
"""Share of hidden communication that compute loses to it: it takes multiprocessors and memory bandwidth."""

SELECTIVE_SHARE = Constant(0.3, "guessed", "of a forward: what selective recompute repeats, measured in another mode")

STEP_HOST_S = Constant(1e-3, "guessed", "data, logging, the optimizer's own Python, a step")

COLLECTIVE_EFFICIENCY: Mapping[str, Constant] = {
    "intra": Constant(0.75, "guessed", "share of the link's data-sheet rate seen as bus bandwidth inside a node"),
    "inter": Constant(0.80, "guessed", "share of the network's data-sheet rate seen between nodes"),
}
COLLECTIVE_LAUNCH_S = Constant(8e-6, "guessed", "one collective: launch and rendezvous")

COMMUNICATOR_BYTES = Constant(256 * 2**20, "guessed", "channel buffers of one communicator on a GPU")

RANGE = Constant(0.25, "guessed", "until it is learned from measured rows")
"""Half-width of the predicted range, as a share of the step time."""

RESOLUTION = Constant(0.005, "guessed", "smaller differences are below what repeated runs of the same plan show")
"""Plans whose steps differ by no more than this share count as equally fast: the plainer one ranks first."""

TIGHT = Constant(0.88, "guessed", "fragmentation and transient peaks: published runs reserve up to 9 % over allocated")
"""From this share of the memory limit on, a plan fits but is tight."""
