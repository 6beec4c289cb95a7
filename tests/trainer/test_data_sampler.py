"""The order of samples: a function of seed and epoch, the same in every layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.trainer.data import TokenFile
from meshwright.trainer.data_sampler import Reading, Sampler, samples, shuffled, window_count


def numbered(count: int) -> TokenFile:
    """Every token is its own position."""
    return TokenFile(np.arange(count, dtype=np.uint32), count)


@given(count=st.integers(1, 400), seed=st.integers(0, 2**63), epoch=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_the_order_is_a_permutation(count: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(index, count, (seed, epoch)) for index in range(count)) == list(range(count))


@given(windows=st.integers(4, 60), extra=st.integers(0, 6), batch=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_every_window_comes_once_an_epoch(windows: int, extra: int, batch: int, seed: int) -> None:
    seq_len = 7
    file = numbered(windows * seq_len + 1 + extra)
    assert window_count(file, seq_len) == windows
    steps = windows  # `batch` whole epochs
    rows = np.concatenate([samples(file, step, batch, seq_len, seed) for step in range(steps)])
    assert rows.shape == (windows * batch, seq_len + 1)
    assert rows.dtype == np.int64
    np.testing.assert_array_equal(rows - rows[:, :1], np.broadcast_to(np.arange(seq_len + 1), rows.shape))
    starts = rows[:, 0].reshape(batch, windows)
    for epoch in starts:
        assert sorted(epoch.tolist()) == [window * seq_len for window in range(windows)]
    targets = np.sort(rows[:windows, 1:].ravel())
    np.testing.assert_array_equal(targets, np.arange(1, windows * seq_len + 1))  # each token a target once


def test_epochs_and_seeds_differ_and_look_shuffled() -> None:
    count = 1000
    orders = {key: [shuffled(i, count, key) for i in range(count)] for key in ((1, 0), (1, 1), (2, 0))}
    for order in orders.values():
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.1  # 3 sigma of a random order is 0.095
    assert np.mean(np.array(orders[1, 0]) == np.array(orders[1, 1])) < 0.02
    assert np.mean(np.array(orders[1, 0]) == np.array(orders[2, 0])) < 0.02


@given(dp=st.sampled_from([1, 2, 3, 4, 6, 12]), step=st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_replicas_share_out_one_global_batch(dp: int, step: int) -> None:
    file = numbered(2000)
    whole = samples(file, step, 12, 16, 5)
    parts = [samples(file, step, 12, 16, 5).reshape(dp, 12 // dp, 17)[replica] for replica in range(dp)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_order_is_pinned() -> None:
    # A resumed run must go on with the order it began with, whatever version wrote the checkpoint.
    assert samples(numbered(101), 0, 5, 10, 7)[:, 0].tolist() == [80, 50, 30, 20, 90]


def test_too_little_text_is_said_with_the_numbers() -> None:
    with pytest.raises(InputError, match="holds 100 tokens, 9 windows of 10; a step of 16 samples needs 161"):
        Sampler(numbered(100), Reading(16, 10, 0))
    with pytest.raises(InputError, match="holds 0 tokens"):
        samples(TokenFile(np.empty(0, np.uint16), 300), 0, 1, 8, 0)
