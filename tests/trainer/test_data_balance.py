"""Dealing samples out by work."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.trainer.data_balance import balanced_order, deal


@given(squares=st.lists(st.integers(0, 10**9), max_size=30), hands=st.integers(1, 8))
def test_everything_is_dealt_once_and_within_the_known_bound(squares: list[int], hands: int) -> None:
    held = deal(squares, hands)
    assert sorted(index for hand in held for index in hand) == list(range(len(squares)))
    work = [sum(squares[index] for index in hand) for hand in held]
    # Of a hand with several the last card was the smallest, and the hand then had the least: Graham 1969.
    most = max(range(hands), key=work.__getitem__)
    if len(held[most]) > 1:
        assert work[most] - min(squares[index] for index in held[most]) <= sum(squares) / hands


@given(data=st.data(), replicas=st.sampled_from([1, 2, 3, 4]), micro_batches=st.sampled_from([1, 2, 4]),
       micro_batch=st.integers(1, 4))  # fmt: skip
def test_an_order_keeps_the_batch_and_the_shape(
    data: st.DataObject, replicas: int, micro_batches: int, micro_batch: int
) -> None:
    count = replicas * micro_batches * micro_batch
    squares = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count)), np.int64)
    order = balanced_order(squares, replicas, micro_batches)
    assert sorted(order.tolist()) == list(range(count))


def test_replicas_and_their_micro_batches_are_even() -> None:
    # Four long and four short: one of each to each micro-batch of each replica.
    squares = np.array([64, 64, 64, 64, 1, 1, 1, 1])
    dealt = squares[balanced_order(squares, 2, 2)]
    assert dealt.reshape(4, 2).sum(1).tolist() == [65, 65, 65, 65]
