"""Activations, logits and peaks: the predictor for our trainer against the trainer's own traced step.

"Traced, CPU kernels": norms written out in operators keep their fp32 copies there, and the predictor for our trainer
counts them so. The model is large enough that cosines, loss scalars and masks do not matter.
"""

from dataclasses import replace
from typing import Any

import pytest

from meshwright.predictor.memory import rank_memory

from .plans import TINY, cut, plan

pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.traced import traced

MODEL = replace(
    TINY, vocab=8000, layers=4, hidden=1024, heads=16, kv_heads=4, head_dim=64, ffn_hidden=2816
)  # fmt: skip
TWO = {"pp": 2, "stages": cut(MODEL, 5, 5)}
INSIDE = {"pp": 2, "stages": cut(MODEL, 4, 6)}
FOUR = {"pp": 2, "vpp": 2, "stages": cut(MODEL, 3, 2, 2, 3)}
BF16 = {"training": {"precision": "bf16"}}
CASES: dict[str, dict[str, Any]] = {
    "fp32": {}, "bf16": BF16, "tp": {"tp": 2}, "sp": {"tp": 4, "sp": True}, "tied": {"arch": replace(MODEL, tied=True)},
    "qk norm": {"arch": replace(MODEL, family="qwen3", qk_norm=True)},
    "biases": {"arch": replace(MODEL, family="qwen2", qkv_bias=True)},
    "selective": {"recompute": "selective"}, "full": {"recompute": "full"},
    "full, first 2 layers": {"recompute": "full", "recompute_layers": 2}, "zero1": {"dp": 4, "zero": 1},
    "1f1b": TWO, "1f1b, inside a layer, full": {**INSIDE, "recompute": "full"}, "1f1b, bf16": {**TWO, **BF16},
    "1f1b, sp": {**TWO, "tp": 2, "sp": True}, "gpipe": {**TWO, "schedule": "gpipe"},
    "interleaved": {**FOUR, "placement": (0, 1, 0, 1), "schedule": "interleaved"},
    "zbv": {**FOUR, "placement": (0, 1, 1, 0), "schedule": "zbv"},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_predicted_activations_are_the_traced_ones(case: str) -> None:
    chosen = {"arch": MODEL, **CASES[case]}
    given = plan(micro_batch=1, global_batch=6 * chosen.get("dp", 1), seq_len=512, **chosen)
    for rank, predicted in enumerate(rank_memory(given.setup, given.layout, given.batch)):
        found, parts = traced(given, rank), predicted.parts
        assert found.in_flight == predicted.in_flight
        assert parts["activations"] == pytest.approx(found.activations, rel=0.03)
        # A layer that comes back, or buckets under way, can outweigh the loss at the peak: logits are then gone.
        if given.layout.recompute != "full" and given.layout.zero == 0:
            assert parts.get("logits", 0) == pytest.approx(found.logits, rel=0.03)
        total = sum(size for kind, size in parts.items() if kind not in ("reserve", "context"))
        assert total == pytest.approx(found.peak, rel=0.05)


@pytest.mark.parametrize(("zero", "within"), [(2, 0.05), (3, 0.1)])
def test_the_peak_with_gradients_under_way_is_predicted(zero: int, within: float) -> None:
    """Buckets under way and gathered weights lie beside the activations: only the whole can be compared. With ZeRO-3
    the predictor gathers layers in pairs, the trainer halves of layers."""
    given = plan(arch=MODEL, micro_batch=1, global_batch=16, seq_len=512, dp=4, zero=zero)
    parts = rank_memory(given.setup, given.layout, given.batch)[0].parts
    total = sum(size for kind, size in parts.items() if kind not in ("reserve", "context"))
    assert total == pytest.approx(traced(given, 0).peak, rel=within)
