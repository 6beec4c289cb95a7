"""How likely a rank runs out of memory: what is allocated is uncertain, and the allocator holds more than that.

The bytes that a device must have are A · (1 + e) · (1 + r) + context: A is predicted, e its error, r what PyTorch's
allocator reserves beyond what is allocated. Ranks are not independent: what is wrong on one is wrong on all.
"""

import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from math import erf, sqrt
from pathlib import Path

from meshwright.basics.figures import Origin
from meshwright.files.setup import Setup
from meshwright.predictor.stacks import stack_of


@dataclass(frozen=True, slots=True)
class Spread:
    """`error`: standard deviation of allocated bytes, measured over predicted. `reserve`: equally likely shares that
    the allocator holds beyond what is allocated."""

    error: float
    reserve: tuple[float, ...]
    origin: Origin
    source: str


@lru_cache(maxsize=1)
def caching() -> Spread:
    """PyTorch's caching allocator on a GPU, as measured rows show it (`bench/fit_memory.py`)."""
    fitted = tomllib.loads((Path(__file__).parent / "memory_spread.toml").read_text(encoding="utf-8"))
    return Spread(fitted["error"], tuple(fitted["reserve"]), "fitted", fitted["source"])


def planned() -> Spread:
    """Memory planned ahead of the step by a compiler: nothing is held back, the error is as with the allocator."""
    return replace(caching(), reserve=(0.0,))


TRACKED = Spread(0.03, (0.0,), "guessed", "tensor bytes counted one by one: no allocator, no context")
"""CPU workers whose tensors are counted against a stated memory."""


def spread_of(setup: Setup) -> Spread:
    """The spread of a job's software on its devices."""
    if setup.proposal.cluster.device.kind == "cpu":
        return TRACKED
    return caching() if stack_of(setup).reserve else planned()


def below(spread: Spread, factor: float) -> float:
    """Probability that a rank needs less than `factor` times what it is predicted to allocate."""
    shares = ((factor / (1 + reserve) - 1) / (spread.error * sqrt(2)) for reserve in spread.reserve)
    return sum(0.5 * (1 + erf(share)) for share in shares) / len(spread.reserve)


@lru_cache(maxsize=64)
def quantile(spread: Spread, probability: float) -> float:
    """The factor over predicted allocated bytes that a rank stays below with this probability."""
    low, high = 0.5, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(spread, middle) < probability else (low, middle)
    return (low + high) / 2


def p_oom(spread: Spread, allocated: float, room: float) -> float:
    """Probability that a rank that is predicted to allocate so many bytes needs more than `room`, the device's memory
    without context."""
    if allocated <= 0:
        return 0.0
    return 1.0 if room <= 0 else 1 - below(spread, room / allocated)
