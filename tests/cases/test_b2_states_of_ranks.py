"""Case B2, on real ranks: the bytes that each holds under ZeRO-1, 2 and 3 are those that are predicted for it."""

import pytest
from tests.trainer.plans import TINY, cut, plan, variant

from meshwright.model.parameters import total_parameters
from meshwright.predictor.memory import rank_memory
from meshwright.trainer.pool import Job, Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")

TIED = variant(tied=True)
LAYOUTS = [
    {"dp": 2}, {"dp": 4}, {"dp": 4, "shard_group": 2}, {"dp": 2, "tp": 2}, {"dp": 2, "arch": TIED},
    {"dp": 2, "pp": 2, "stages": cut(TINY, 4, 6)}, {"dp": 2, "pp": 2, "stages": cut(TINY, 4, 6), "arch": TIED},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_b2_what_ranks_hold_is_what_was_predicted(zero: int, pool: Pool) -> None:
    for layout in LAYOUTS:
        given = plan(micro_batch=2, zero=zero, **layout)
        predicted = rank_memory(given.setup, given.layout, given.batch)
        for stage, held in pool.run(Job("tests.trainer.holding:held", (given,), given.layout.world, 20.0)):
            parts = predicted[stage].parts
            assert (held.weights, held.gradients) == (parts["weights"], parts["gradients"]), layout
            steps = held.optimizer - parts["optimizer"]  # beside two moments a parameter, each tensor's count of steps
            assert 0 < steps <= 4 * 39, layout


@pytest.mark.slow
def test_b2_bytes_a_parameter(pool: Pool) -> None:
    """In fp32, N = 4 replicas: weights 4, gradients 4, moments 8, of which ZeRO divides 8, 12, 16."""
    count = total_parameters(TINY)
    for zero, weights, gradients in ((0, 4, 4), (1, 4, 4), (2, 4, 1), (3, 1, 1)):
        given = plan(dp=4, micro_batch=2, zero=zero)
        for _, held in pool.run(Job("tests.trainer.holding:held", (given,), 4, 20.0)):
            assert (held.weights, held.gradients) == (weights * count, gradients * count)
            assert held.optimizer == pytest.approx((8 if zero == 0 else 2) * count, abs=4 * 39)
