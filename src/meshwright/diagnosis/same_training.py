"""Metrics of several layouts of one training against each other: do they train the same model?"""

from collections.abc import Sequence
from dataclasses import dataclass

EXACT, HALF = 1e-5, 2e-3
"""Relative differences of a step-1 loss that rounding explains: in fp32, and in 16 bits or less."""

_NORM = 0.02
_AGREE = 0.02  # two shares of replicated gradient that are this close are the same


@dataclass(frozen=True, slots=True)
class Metrics:
    """One layout's figures: losses and gradient norms by step, from the same step on."""

    name: str
    tp: int
    dp: int
    precision: str
    losses: tuple[float, ...]
    norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What does not agree, first in the order initial loss, initial gradient norm, later loss."""

    what: str
    names: tuple[str, str]
    difference: float  # relative
    suspicion: str
    share: float | None = None  # of the squared gradient norm that is replicated over the tensor group


def judge_layouts(runs: Sequence[Metrics]) -> Doubt | None:
    """The first thing in which the runs differ more than rounding explains; None where they agree.

    Runs are compared with the one of least tensor degree. A norm that grows as sqrt(1 + (t - 1) r) at equal loss is
    that of replicated weights counted once a tensor rank, r their share of the squared norm.
    """
    base, *others = sorted(runs, key=lambda run: (run.tp, run.dp))
    limit = EXACT if all(run.precision == "fp32" for run in runs) else HALF
    for other in others:
        if (apart := _apart(base.losses[0], other.losses[0])) > limit:
            return Doubt("loss of the first step", (base.name, other.name), apart,
                         "weights are initialised differently, or samples are dealt out differently")  # fmt: skip
    if doubt := _norms(base, others):
        return doubt
    for other in others:
        for step, (ours, theirs) in enumerate(zip(base.losses, other.losses, strict=False)):
            if (apart := _apart(ours, theirs)) > 10 * limit:
                return Doubt(
                    f"loss of step {step + 1}",
                    (base.name, other.name),
                    apart,
                    "the first step agrees: look at the optimizer, or at noise that differs by layout",
                )
    return None


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def _norms(base: Metrics, others: Sequence[Metrics]) -> Doubt | None:
    shares = {}
    for other in others:
        ratio = other.norms[0] / base.norms[0] if base.norms[0] else 1.0
        if other.tp > base.tp and ratio > 1 + _NORM:
            # (1 + (t - 1) r) / (1 + (t0 - 1) r) = ratio²
            share = (ratio**2 - 1) / ((other.tp - 1) - ratio**2 * (base.tp - 1) or 1.0)
            if 0 < share <= 1:
                shares[other.name] = share
    if len(shares) > 1 and max(shares.values()) - min(shares.values()) <= _AGREE:
        share = sum(shares.values()) / len(shares)
        worst = max(others, key=lambda run: run.norms[0])
        return Doubt(
            "gradient norm", (base.name, worst.name), worst.norms[0] / base.norms[0] - 1,
            f"grows with the tensor degree as replicated weights counted once a rank do: they hold {share:.0%} of the "
            "squared norm; count replicated gradients once",
            share,
        )  # fmt: skip
    for other in others:
        ratio = other.norms[0] / base.norms[0] if base.norms[0] else 1.0
        degrees = {"dp": other.dp / base.dp, "tp": other.tp / base.tp}
        for name, degree in degrees.items():
            if degree != 1 and any(abs(ratio / factor - 1) < 0.01 for factor in (degree, 1 / degree)):
                return Doubt("gradient norm", (base.name, other.name), ratio - 1,
                             f"off by just the ratio of {name}: gradients are summed where they should be averaged, or "
                             "the other way round")  # fmt: skip
        if abs(ratio - 1) > _NORM:
            possible = f"; replicated weights of {shares[other.name]:.0%} would do it" if other.name in shares else ""
            return Doubt(
                "gradient norm",
                (base.name, other.name),
                ratio - 1,
                f"suspicious: losses agree and norms do not{possible}; repeat both in fp32",
                shares.get(other.name),
            )
    return None
