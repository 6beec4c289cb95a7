"""What moved between runs: a planted shift of 3 % is found at ten repeats, noise is not."""

import numpy as np
import pytest

from meshwright.diagnosis.comparison import moved


@pytest.mark.parametrize("seed", range(20))
def test_three_percent_is_found_at_ten_repeats(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.normal(0.2, 0.002, 10)
    second = rng.normal(0.206, 0.002, 10)  # noise of 1 %
    found = moved(first.tolist(), second.tolist())
    assert found.significant
    assert found.low < 0.03 < found.high or found.change == pytest.approx(0.03, abs=0.015)


def test_pure_noise_is_hardly_ever_taken_for_a_change() -> None:
    rng = np.random.default_rng(1)
    false = sum(
        moved(rng.normal(1, 0.01, 10).tolist(), rng.normal(1, 0.01, 10).tolist()).significant for _ in range(100)
    )
    assert false <= 4  # 1 in 100 expected; five or more have a chance of 0.4 %


def test_too_few_repeats_do_not_say() -> None:
    found = moved([1.0, 1.01, 0.99], [2.0, 2.01, 1.99])
    assert found.chance is None
    assert not found.significant
    assert found.change == pytest.approx(1.0)
