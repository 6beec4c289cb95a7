"""What the verbs print that train, or read what training recorded: device seconds, each with its mode."""

from typing import Any, Literal

from pydantic import Field

from meshwright.basics.figures import Mode
from meshwright.files.outputs import Output, Part, PlanEntry, PlanFigures


class TrainOutput(Output):
    """train: what the run did. Times are device seconds: wall seconds over `dilation`."""

    mode: Mode
    run: str
    steps: int
    loss: float | None
    first_loss: float | None
    tokens_per_s: float
    step_time_s: float = Field(description="median over the measured windows")
    step_time_spread_s: tuple[float, float] = Field(description="lowest and highest window median")
    windows_s: list[float]
    mfu: float | None
    bubble_fraction: float | None
    memory_gib: float | None
    dilation: float


class ParityRow(Part):
    """One plan beside the reference."""

    plan: str
    ranks: int
    equal: bool
    largest_difference: float | None
    losses: list[float]


class ParityOutput(Output):
    """parity: do the layouts give the same training as one process?"""

    mode: Mode
    equal: bool
    compared: int = Field(description="steps compared")
    first_difference: str | None
    table: list[ParityRow]


class RankPart(Part):
    """One rank over the window, device seconds a step: compute + exposed_comm + exposed_copy + idle = window."""

    rank: int
    window_s: float
    compute_s: float
    exposed_comm_s: float
    exposed_copy_s: float
    idle_s: float
    comm_s: float = Field(description="all communication, covered or not")
    unclassified_s: float


class FindingPart(Part):
    """One cause of lost time; also an entry of findings.json."""

    kind: str
    ranks: list[int]
    stages: list[int]
    evidence: dict[str, Any]
    cause: str
    cost_s_per_step: float | None
    share: float | None
    confidence: Literal["high", "medium", "low"]
    change: dict[str, Any] = Field(description="a patch to plan.toml; empty: only a person can act")
    predicted_gain: tuple[float, float, float] | None = Field(description="low, expected, high share of the step")
    verify: str


class DiagnoseOutput(Output):
    """diagnose: where the time went, why, and what to change."""

    mode: Mode
    inputs: list[str]
    window: str
    step_time_s: float | None
    ranks: list[RankPart]
    bubble: dict[str, Any]
    memory: dict[str, Any]
    findings: list[FindingPart]
    abstained: list[str]
    tables: dict[str, Any] = Field(
        default_factory=dict, description="what inputs other than traces of steps say, by their path"
    )


class RebalanceOutput(Output):
    """rebalance: the plan that the measurement asks for."""

    mode: Mode
    before: PlanFigures
    after: PlanFigures
    moves: list[str]
    predicted_gain: float = Field(description="share of the step time")


class TunedRunPart(Part):
    """One run of the loop: its plan predicted from the unit times it measured, what it did, and what was found."""

    run: str
    prediction: PlanFigures
    measured: TrainOutput
    diagnosis: DiagnoseOutput


class JournalPart(Part):
    """One change of the loop: gains are shares of the step time."""

    change: dict[str, Any]
    reason: str
    changed_plan: PlanFigures = Field(description="predicted from the unit times of the run before")
    predicted: float
    measured: float
    measured_range: tuple[float, float] = Field(description="worst and best pairing of repeats")
    kept: bool
    after: TunedRunPart


class TuneOutput(Output):
    """tune: the whole loop. `mode` is that of the measured figures."""

    mode: Mode
    plan: str = Field(description="the plan.toml that was kept")
    prediction: PlanFigures = Field(description="of the first plan, before anything was measured")
    first: TunedRunPart = Field(description="the run of the first plan")
    findings: list[FindingPart] = Field(description="what the first run's diagnosis found")
    journal: list[JournalPart]
    changed_plan: PlanFigures | None = Field(description="the last change that was kept; null: none was")
    predicted_gain: float | None = Field(description="of the last change that was kept, share of the step time")
    measured_gain: float | None = Field(description="of the last change that was kept, share of the step time")
    measured: TrainOutput = Field(description="the kept plan as it ran")
    remaining: list[FindingPart] = Field(description="what is still found in the kept plan")
    ranking: list[PlanEntry] = Field(description="the plans compared with the job's fixed parts, best first")
    unfixed: list[PlanEntry] = Field(description="the plans compared with nothing fixed, best first")
    report: str | None
    stopped: str = Field(description="why the loop ended")


class ReportOutput(Output):
    """report: the page that was written."""

    path: str
