"""What the loop did: the values that `tune` returns and that the journal and the report read."""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.basics.figures import Mode
from meshwright.files.prediction import Prediction
from meshwright.files.run import RunFolder
from meshwright.loop.candidates import Candidate
from meshwright.loop.measure import Measurement
from meshwright.planner.rank import PlanResult


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the loop: what was changed, what it should have saved, what it did save (shares of the step)."""

    change: Mapping[str, object]
    reason: str
    before: Measurement
    after: Measurement
    predicted: Prediction  # of the changed plan, from the unit times measured before
    predicted_gain: float
    kept: bool

    @property
    def measured_gain(self) -> float:
        """Share of the step time saved, by the medians."""
        return 1 - self.after.step_time_s / self.before.step_time_s

    @property
    def measured_gain_range(self) -> tuple[float, float]:
        """The worst and the best pairing of windows before and after."""
        before, after = self.before.result.windows, self.after.result.windows
        return 1 - max(after) / min(before), 1 - min(after) / max(before)


@dataclass(frozen=True, slots=True)
class TuneResult:
    """All that the loop did. `first` ran first; `final` is the plan that was kept."""

    folder: RunFolder
    mode: Mode
    ranking: PlanResult  # with the fixed parts of the job
    unfixed: PlanResult  # with nothing fixed: what the fixed parts cost
    cold: Prediction  # of the first plan, before anything was measured
    warm: Prediction  # of the first plan, from its own measured unit times
    first: Measurement
    final: Measurement
    steps: tuple[Step, ...]
    stopped: str  # why the loop ended
    left: tuple[Candidate, ...]  # changes it saw and did not make
