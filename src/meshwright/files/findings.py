"""What a diagnosis says: the schema of `findings.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from meshwright.basics.figures import Mode

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of lost time, memory or work, with its evidence and the change that would cure it.

    `cost_s_per_step` is device seconds a step, `share` its part of the step, None where the input cannot say; `change`
    is a patch to plan.toml ("layout.recompute" -> "none"), empty when only a person can act; gains are shares of the
    step time.
    """

    kind: str
    ranks: tuple[int, ...]
    stages: tuple[int, ...]
    cause: str  # a sentence for people
    evidence: Mapping[str, object]
    cost_s_per_step: float | None
    share: float | None
    confidence: Confidence
    change: Mapping[str, object]
    predicted_gain: tuple[float, float, float] | None  # low, expected, high: share of the step time saved
    verify: str  # how to verify


@dataclass(frozen=True, slots=True)
class RankSplit:
    """The four-way split of one rank over the window; the four sum to `window_s`. Device seconds a step."""

    rank: int
    window_s: float
    compute_s: float
    exposed_comm_s: float
    exposed_copy_s: float
    idle_s: float
    comm_s: float  # total, covered or not
    unclassified_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that `diagnose` reports. `abstained` lists what could not be said and why."""

    inputs: tuple[str, ...]
    mode: Mode
    window: str  # which steps, how long
    ranks: tuple[RankSplit, ...]
    bubble: Mapping[str, object]  # ideal, observed, excess, stage blamed; empty without a pipeline
    memory: Mapping[str, object]
    findings: tuple[Finding, ...]
    abstained: tuple[str, ...]
    step_time_s: float | None = None
    tables: Mapping[str, object] = field(default_factory=dict)  # what each other input says, by its path
