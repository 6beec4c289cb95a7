"""What a parity comparison trains, and what comes of it: values that travel between its processes."""

from dataclasses import dataclass
from pathlib import Path

from meshwright.files.plan import Plan

LAST_WORDS = "failed: "  # begins the line with which a failing rank says why


@dataclass(frozen=True, slots=True)
class Course:
    """How one case trained: a value a step, and the norm of all weights before and after."""

    losses: tuple[float, ...]
    grad_norms: tuple[float, ...]
    weights_before: float
    weights_after: float
    drifted: tuple[str, ...]  # parameters whose copies on several ranks came to differ


@dataclass(frozen=True, slots=True)
class Case:
    """One plan to train for `steps` steps on the tokens in a folder."""

    plan: Plan
    steps: int
    tokens: Path
    timeout_s: float
