"""Buffers of the gradient exchange: copies in which gradients travel beside those that are kept.

Our trainer's ZeRO-1 and ZeRO-2 pack a bucket by the rows of each rank, so that a message is a copy as large as the
bucket and receives one rank's rows of it; two are under way at a time (`trainer/parallel/buckets.py`). What it does
without ZeRO travels where it lies. Others copy into two buckets when gradients are summed whole.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Some = Floats | float
"""One value for all rows, or one a row."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Bytes while the loss is at work, while layers are, and between the last backward and the end of the update."""

    at_loss: Some
    in_layers: Some
    at_step: Some


NO_MESSAGES = Messages(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Travelling:
    """Bytes, unless said otherwise: the gradients that a rank computes, those of a bucket and of the largest tensor
    (a bucket of its own where it is larger), and one micro-batch's activations, which go as gradients come."""

    zero: NDArray[np.int64] | int
    shards: Some  # ranks
    whole: Some
    bucket: Some
    tensor: Some
    once: Some
    filled: NDArray[np.bool_] | bool  # backwards are over when the most activations are alive
    gloo: bool  # it copies what is sent, and what is gathered twice, while the call lasts


def copied(of: Travelling, kept: Some) -> Messages:
    """Two buckets where gradients are summed whole, never more than the gradients that are kept."""
    both = np.where(np.less_equal(of.zero, 1), np.minimum(2 * of.bucket, kept), 0.0)
    return Messages(both, both, 0.0)


def packed(of: Travelling) -> Messages:
    """As our trainer packs them. ZeRO-1 sends in the last backward, when activations go. ZeRO-2 sends in each, keeps
    the last two messages until the next one sends, and has the gradients of a bucket whole until it is full."""
    whole = np.maximum(of.whole, 1.0)
    full = np.minimum(np.maximum(of.bucket, of.tensor), whole)
    two = np.minimum(full + of.bucket, whole)
    flying = two * (1 + 1 / of.shards)
    waiting = np.where(of.filled, flying, 0.0)
    first, second = np.equal(of.zero, 1), np.equal(of.zero, 2)
    call = full if of.gloo else 0.0
    gathering = full * (1 + 1 / of.shards) * (2 if of.gloo else 1)  # of new weights, a bucket at a time
    late = np.maximum(flying - of.once * two / whole, 0.0)
    each = np.maximum(waiting, flying + full + call - of.once * full / whole)
    after = np.where(first, flying, flying + full + call)
    return Messages(
        np.where(second, waiting, 0.0), np.where(first, late, np.where(second, each, 0.0)),
        np.where(first | second, np.maximum(after, gathering), 0.0),
    )  # fmt: skip
