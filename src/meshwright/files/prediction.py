"""The predictor's answer for one plan: plain values, in seconds and bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from meshwright.basics.figures import Mode, Origin

Verdict = Literal["fits", "tight", "does not fit"]
TIGHT, DOES_NOT_FIT, IMPOSSIBLE = 0.01, 0.5, 0.9
"""Probabilities of running out from which a plan is called tight, called not to fit, and called impossible."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Every byte of one pipeline rank by kind at the moment of its peak: `parts` sum to `total`.

    Keys of `parts`: weights, gradients, master, optimizer, gathered, activations, recomputed, logits, step,
    communication, working (gradients of activations, workspaces of libraries), reserve, context (kinds without a byte
    may be left out). `moments` are the totals in backward and in the optimizer step: the larger one is the peak.
    """

    pipeline_rank: int
    stages: tuple[int, ...]
    parts: Mapping[str, int]
    in_flight: int  # micro-batches whose activations are alive at the peak
    units: Mapping[str, int] = field(default_factory=dict)  # activation bytes at the peak by kind of unit
    moments: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None  # bytes that this rank may use; None: as `Prediction.memory_limit_bytes`
    p_oom: float | None = None  # probability of running out; None: not estimated
    range: tuple[int, int] | None = None  # total within which nine of ten such runs lie

    @property
    def total(self) -> int:
        """Bytes of the whole rank."""
        return sum(self.parts.values())


def verdict(rank: StageMemory, limit: int) -> Verdict:
    """What to say of one pipeline rank's memory: by its probability of running out, or by its total without one.
    `limit` (bytes) counts where the rank has none of its own."""
    if rank.p_oom is None:
        return "fits" if rank.total <= (limit if rank.limit is None else rank.limit) else "does not fit"
    return "does not fit" if rank.p_oom >= DOES_NOT_FIT else "tight" if rank.p_oom >= TIGHT else "fits"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figures of one plan. `terms` is the waterfall: seconds a step by cause, summing to `step_time_s`.

    `terms` keys: compute, recompute, imbalance, bubble, tp_comm, cp_comm, ep_comm, pp_comm, dp_comm, optimizer, host.
    `stage_compute_s[r]` is pipeline rank r's own busy compute in a step. All figures are device seconds.
    """

    step_time_s: float
    step_time_range_s: tuple[float, float]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float | None  # None where the device's peak is unknown
    bubble_fraction: float  # mean over pipeline ranks of their idle share until the last backward ends
    exposed_comm_s: float
    terms: Mapping[str, float]
    stage_compute_s: tuple[float, ...]
    idle_fraction: tuple[float, ...]  # a pipeline rank: 1 - compute / step
    memory: tuple[StageMemory, ...]
    memory_limit_bytes: int
    fits: bool
    origins: Mapping[str, Origin]  # constant -> where it comes from
    mode: Mode = "predicted"

    @property
    def worst_memory(self) -> StageMemory:
        """The pipeline rank that needs most."""
        return max(self.memory, key=lambda stage: stage.total)
