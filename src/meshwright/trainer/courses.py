"""What a parity comparison trains, and what comes of it: values that travel between its processes."""

from dataclasses import dataclass
from pathlib import Path

from meshwright.files.plan import Plan

OWN, GLOBAL = 1e-5, 1e-7  # a gradient may differ by this share of its own norm, or of the global norm if that is more


@dataclass(frozen=True, slots=True)
class Course:
    """How one case trained: a value a step, and the norm of all weights before and after.

    Beside a reference also how each whole parameter differs from the reference's: see `Difference`.
    """

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    weights_before: float
    weights_after: float
    drifted: tuple[str, ...]  # parameters whose copies on several ranks came to differ
    initial: tuple[str, ...] = ()  # parameters whose initial weights are not equal to the bit, or are missing
    gradients: tuple["Difference", ...] = ()  # of the first step
    weights: tuple["Difference", ...] = ()  # after the last step


@dataclass(frozen=True, slots=True)
class Difference:
    """The norm of a difference of one parameter over the norm that it is measured by."""

    name: str
    relative: float


@dataclass(frozen=True, slots=True)
class Case:
    """One plan to train for `steps` steps on the tokens in a folder; `keep` is where a reference leaves its parameters,
    `beside` where the reference's lie. `ragged`: samples end early, each elsewhere, as padded ones do."""

    plan: Plan
    steps: int
    tokens: Path
    timeout_s: float
    keep: Path | None = None
    beside: Path | None = None
    ragged: bool = False
