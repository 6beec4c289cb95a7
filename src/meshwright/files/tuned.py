"""What the loop leaves for machines: the schema of `tune.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.basics.figures import Mode


@dataclass(frozen=True, slots=True)
class TunedStep:
    """One change of the loop: gains are shares of the step; `before` and `after` are names of run folders."""

    change: Mapping[str, Any]
    reason: str
    before: str
    after: str
    predicted_gain: float
    measured_gain: float
    measured_gain_range: tuple[float, float]  # the worst and the best pairing of repeats
    kept: bool


@dataclass(frozen=True, slots=True)
class Tuned:
    """The whole loop. `mode` is that of the measured figures; `stopped` says why it ended."""

    mode: Mode
    stopped: str
    journal: tuple[TunedStep, ...]
