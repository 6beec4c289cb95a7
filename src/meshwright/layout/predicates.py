"""What makes a layout legal, as bare arithmetic.

`Numbers` are a whole number or a NumPy array of them, freely mixed: the rules ask about one layout, a planner may ask
about a million at once. The answer is a truth value, or an array of them.
"""

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = int | NDArray[np.int64]
Truth = Any  # bool, or an array of bool where any argument is an array


def divides(part: Numbers, whole: Numbers) -> Truth:
    """Is `whole` a multiple of `part`?"""
    return whole % part == 0


def world_matches(dp: Numbers, tp: Numbers, pp: Numbers, cp: Numbers, gpus: Numbers) -> Truth:
    """Is dp * tp * pp * cp the number of devices?"""
    return dp * tp * pp * cp == gpus


def heads_split(heads: Numbers, kv_heads: Numbers, tp: Numbers) -> Truth:
    """Do query heads and key-value heads both divide by the tensor degree?"""
    return divides(tp, heads) & divides(tp, kv_heads)


def expert_ranks_fit(dp: Numbers, cp: Numbers, tp: Numbers, ep: Numbers, etp: Numbers) -> Truth:
    """Can ep * etp ranks be carved out of dp * cp * tp? With etp = tp this is: ep divides dp * cp."""
    return divides(ep * etp, dp * cp * tp)


def sequence_multiple(tp: int, cp: int, sp: bool) -> int:
    """What the sequence length must be a multiple of. Each context rank takes two slices (one early, one late, so that
    causal attention is balanced); sequence parallelism cuts every slice once more for each tensor rank."""
    return (2 * cp if cp > 1 else 1) * (tp if sp else 1)


def around(value: int, step: int) -> tuple[int, int]:
    """The multiples of `step` next below (at least `step`) and above `value`; equal when it is one itself."""
    below = max(step, value // step * step)
    above = -(-value // step) * step
    return below, above


def common_divisors(*numbers: int) -> tuple[int, ...]:
    """All numbers that divide each of them, ascending."""
    shared = gcd(*numbers)
    return tuple(d for d in range(1, shared + 1) if shared % d == 0)


def padded_vocab(vocab: int, tp: int, multiple: int = 128) -> int:
    """Rows of the embedding once they are padded to a multiple of `multiple` * tp: equal and well-shaped shards."""
    return around(vocab, multiple * tp)[1]
