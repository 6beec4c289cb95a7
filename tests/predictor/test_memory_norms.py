"""What norms written out in operators keep: every normed value once, where it lies. Values counted by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.training import Training
from meshwright.model.units import units_of
from meshwright.predictor.compute import Share
from meshwright.predictor.memory_units import kept_bytes
from meshwright.predictor.stacks import Stack

PLAIN = Architecture("plain", "llama", 2, 512, 8, 2, 64, 1536, 4096)
TOKENS = 2 * 128


def wide(tp: int, spread: int) -> float:
    """The norm of the hidden states, which sequence parallelism divides."""
    return 512 / spread


def heads(tp: int, spread: int) -> float:
    """And queries and keys, eight heads and two, which the tensor group divides in any case."""
    return 512 / spread + (8 / tp + max(2 / tp, 1)) * 64


CASES: dict[str, tuple[Architecture, Callable[[int, int], float]]] = {
    "none": (PLAIN, wide),
    "by head": (replace(PLAIN, qk_norm=True), heads),
    "all heads together": (replace(PLAIN, qk_norm=True, qk_norm_wide=True), heads),
    "as wide as hidden": (
        replace(PLAIN, kv_heads=8, qk_norm=True, qk_norm_wide=True), lambda tp, spread: 512 / spread + 2 * 512 / tp
    ),
    "without a scale": (replace(PLAIN, qk_norm=True, qk_norm_weight=False), heads),
    "before and after": (replace(PLAIN, layer_norms=4), lambda tp, spread: 2 * 512 / spread),
    "with a bias": (replace(PLAIN, norm="layer"), wide),
    "latent": (
        replace(PLAIN, latent=LatentAttention(64, 32, 16, 32, 96)), lambda tp, spread: (512 + 64 + 96) / spread
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("tp", "sp"), [(1, False), (2, False), (2, True), (4, True)])
def test_written_out_norms_keep_four_bytes_of_each_value(name: str, tp: int, sp: bool) -> None:
    arch, expected = CASES[name]
    unit = next(unit for unit in units_of(arch) if unit.kind == "attn")
    share = Share(2, 128, tp, sp, 1, 1, 1, "none")
    fused, written = (
        kept_bytes(arch, Training(), unit, share, "none", Stack("s", "", norm_bytes=size)) for size in (0.0, 4.0)
    )
    assert written - fused == pytest.approx(4 * TOKENS * expected(tp, tp if sp else 1))
