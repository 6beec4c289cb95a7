"""The batch equation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.layout.batch import (
    Batch,
    divisors,
    equation,
    holds,
    micro_batch_choices,
    micro_batches_for,
    nearest_global,
    solve,
)

SMALL = st.integers(1, 500)


@given(SMALL, SMALL, SMALL)
def test_solve_gives_what_the_equation_says(micro: int, count: int, dp: int) -> None:
    total = micro * count * dp
    assert solve(total, 8, dp, micro) == Batch(total, micro, count, 8)
    assert holds(total, micro, count, dp)
    assert micro in micro_batch_choices(total, dp)


@given(SMALL, SMALL, SMALL)
def test_solve_is_none_exactly_when_there_is_no_whole_count(total: int, micro: int, dp: int) -> None:
    assert (solve(total, 8, dp, micro) is None) == (total % (micro * dp) != 0)
    assert (micro_batches_for(total, micro, dp) is None) == (total % (micro * dp) != 0)


@given(SMALL, SMALL, SMALL)
def test_nearest_global_brackets(total: int, micro: int, dp: int) -> None:
    below, above = nearest_global(total, micro, dp)
    step = micro * dp
    assert below % step == above % step == 0
    assert below <= above <= below + step
    assert below <= total <= above or (total < step and below == above == step)


@pytest.mark.parametrize(
    ("total", "micro", "dp", "near"), [(30, 4, 2, (24, 32)), (2880, 6, 56, (2688, 3024)), (1, 4, 2, (8, 8))]
)
def test_nearest_global_of_public_cases(total: int, micro: int, dp: int, near: tuple[int, int]) -> None:
    assert nearest_global(total, micro, dp) == near


def test_node_counts_that_keep_the_global_batch() -> None:
    """2880 samples, micro-batch 6, 8 GPUs a node, all data parallel: m = 60 / n."""
    counts = {n: micro_batches_for(2880, 6, 8 * n) for n in range(1, 61)}
    assert [n for n, m in counts.items() if m is not None] == list(divisors(60))
    assert [counts[n] for n in (1, 2, 3, 4, 5, 6)] == [60, 30, 20, 15, 12, 10]


def test_tokens_and_the_printed_equation() -> None:
    batch = Batch(256, 16, 8, 2048)
    assert batch.tokens == 256 * 2048
    assert batch.micro_tokens == 16 * 2048
    assert equation(256, 16, 8, 2) == "global 256 = micro_batch 16 · micro_batches 8 · dp 2"
    assert equation(30, 4, None, 2) == "global 30 = micro_batch 4 · micro_batches ? · dp 2"


@given(st.integers(1, 5000))
def test_divisors(n: int) -> None:
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)
