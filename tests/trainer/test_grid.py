"""Every pair of options that may go together is trained together once, and trains as one process does."""

from itertools import combinations, product

import pytest

from meshwright.trainer.parity import parity
from meshwright.trainer.pool import Pool

from .grid import OPTIONS, covering, pairs, plan_of, refusal

pytest.importorskip("torch", reason="training needs meshwright[train]")


def test_every_pair_is_covered_or_excluded_by_a_rule() -> None:
    rows, excluded = covering()
    every = {
        ((a, x), (b, y))
        for (a, first), (b, second) in combinations(enumerate(OPTIONS.values()), 2)
        for x, y in product(first, second)
    }
    covered = set().union(*(pairs(row) for row in rows))
    assert every == covered | set(excluded)
    assert not covered & set(excluded)
    assert all(refusal(row) is None for row in rows)
    names = list(OPTIONS)
    for ((a, x), (b, y)), why in excluded.items():
        print(f"{names[a]} {x} with {names[b]} {y}: {why}")
    assert len(excluded) < 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_covering_array_trains_as_one_process(pool: Pool) -> None:
    plans = [given for row in covering()[0] if (given := plan_of(row)) is not None]
    found = parity(plans, steps=2, pool=pool)
    assert [row.plan for row in found.table if not row.equal] == [], found.first_difference
