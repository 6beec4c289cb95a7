"""Case E6: both copies of a tied matrix get the sum of both gradients, and never differ."""

import pytest
from tests.trainer.plans import TINY, cut, plan, variant

from meshwright.trainer.parity import compare, train_all
from meshwright.trainer.pool import Job, Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")

TIED = variant(tied=True)
HALVES, FOUR, VEE = cut(TINY, 5, 5), cut(TINY, 3, 2, 2, 3), (0, 1, 1, 0)
ENDS_APART = [
    {"stages": HALVES, "pp": 2, "micro_batch": 4},  # m = 4
    {"stages": HALVES, "pp": 2, "dp": 2, "micro_batch": 2},
    {"stages": HALVES, "pp": 2, "dp": 2, "micro_batch": 2, "zero": 3},
    {"stages": HALVES, "pp": 2, "tp": 2},
]
ENDS_TOGETHER = {"stages": FOUR, "placement": VEE, "pp": 2, "vpp": 2, "schedule": "zbv"}


@pytest.mark.slow
def test_e6_copies_are_equal_after_20_steps(pool: Pool) -> None:
    plans = [plan(arch=TIED), *(plan(arch=TIED, **layout) for layout in (*ENDS_APART, ENDS_TOGETHER))]
    one, *rest = train_all(plans, 20, 20.0, pool=pool, beside=[None, *[0] * (len(plans) - 1)])
    for course in rest:
        assert course.drifted == ()  # to the bit
        assert compare(one, course, 1e-5)[1] is None


@pytest.mark.slow
def test_e6_the_exchange_is_once_a_step_and_not_needed_on_one_rank(pool: Pool) -> None:
    for layout, expected in ((ENDS_APART[0], 1), (ENDS_TOGETHER, 0)):
        for counts, _ in pool.run(Job("tests.trainer.looking:sent", (plan(arch=TIED, **layout),), 2, 20.0)):
            assert counts["tied embedding"] == expected


@pytest.mark.slow
def test_e6_two_copies_are_held_only_where_the_ends_are_apart(pool: Pool) -> None:
    matrix = 4 * TIED.vocab * TIED.hidden
    sizes = {}
    for name, layout in (("one", {}), ("apart", ENDS_APART[0]), ("together", ENDS_TOGETHER)):
        given = plan(arch=TIED, **layout)
        held = pool.run(Job("tests.trainer.holding:held", (given,), given.layout.world, 20.0))
        sizes[name] = sum(memory.weights for _, memory in held)
    assert sizes["apart"] - sizes["one"] == matrix
    assert sizes["together"] == sizes["one"]
