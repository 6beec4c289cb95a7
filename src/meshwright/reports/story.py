"""What a page tells, as values: the plan, the runs with what was believed before each, and the changes of a loop."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.files.findings import Diagnosis
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction
from meshwright.files.run import RankMemory, RunResult, StepMetrics
from meshwright.files.tuned import TunedStep
from meshwright.timeline.columns import Timeline


@dataclass(frozen=True, slots=True)
class RunView:
    """One run and what was predicted for it. What a run did not record is None or empty: never zero."""

    name: str
    plan: Plan
    predictions: Mapping[str, Prediction]  # by basis ("before measuring", ...); the last one is the best informed
    predicted_timeline: Timeline | None = None
    result: RunResult | None = None
    metrics: tuple[StepMetrics, ...] = ()
    memory: tuple[RankMemory, ...] = ()
    diagnosis: Diagnosis | None = None
    timeline: Timeline | None = None
    environment: Mapping[str, object] = field(default_factory=dict)

    @property
    def prediction(self) -> Prediction | None:
        """The best informed prediction."""
        return self.predictions[self.basis] if self.predictions else None

    @property
    def basis(self) -> str:
        """What the best informed prediction was made from; empty without one."""
        return [*self.predictions][-1] if self.predictions else ""

    @property
    def pipeline_rank_of(self) -> tuple[int, ...]:
        """The pipeline rank of each rank: pp is the outermost axis of the rank grid."""
        layout = self.plan.layout
        return tuple(rank // (layout.world // layout.pp) for rank in range(layout.world))


@dataclass(frozen=True, slots=True)
class Story:
    """Everything on one page. Without `runs` it tells of the plan alone."""

    title: str
    plan: Plan  # the plan that the page recommends or shows
    runs: tuple[RunView, ...] = ()
    turns: tuple[TunedStep, ...] = ()
    stopped: str = ""  # why the loop ended
    missing: tuple[str, ...] = ()  # what could not be shown, and why
    plan_timeline: Timeline | None = None
