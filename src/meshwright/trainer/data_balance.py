"""Samples of unequal length, dealt out so that replicas and micro-batches have about equal work.

Attention costs the square of a document's length, so equal numbers of tokens are not equal work: what is evened out is
the sum of squared lengths, longest first to whoever has least (the LPT rule, Graham 1969).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def deal(squares: Sequence[int] | NDArray[np.int64], hands: int, most: int | None = None) -> list[list[int]]:
    """Which samples each of `hands` gets: their indices into `squares` (a sample's sum of squared document lengths).

    Largest first, each to the hand with the least so far that holds fewer than `most`; ties by number, so that every
    rank deals alike.
    """
    work, held = [0] * hands, [list[int]() for _ in range(hands)]
    for index in sorted(range(len(squares)), key=lambda index: (-int(squares[index]), index)):
        hand = min(
            (hand for hand in range(hands) if most is None or len(held[hand]) < most), key=lambda h: (work[h], h)
        )
        held[hand].append(index)
        work[hand] += int(squares[index])
    return held


def balanced_order(squares: NDArray[np.int64], replicas: int, micro_batches: int) -> NDArray[np.int64]:
    """An order of a global batch in which replica after replica, and in each micro-batch after micro-batch, gets
    equally many consecutive samples and about equal work. The batch holds the same samples as before."""
    per_replica = len(squares) // replicas
    order: list[int] = []
    for held in deal(squares, replicas, per_replica):
        own = sorted(held)
        for part in deal(squares[own], micro_batches, per_replica // micro_batches):
            order += [own[index] for index in sorted(part)]
    return np.array(order, np.int64)
