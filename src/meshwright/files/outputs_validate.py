"""What `validate` prints with --json: measured rows beside their predictions."""

from typing import Literal

from pydantic import Field

from meshwright.files.outputs import Output, Part


class ErrorStatistics(Part):
    """How far predictions are from measurements. An error is predicted over measured, less 1; every configuration
    counts once, by its latest measurement. Null: nothing was measured."""

    rows: int = Field(description="measured rows")
    configurations: int = Field(description="distinct configurations among them")
    median_error: float | None = Field(description="of the sizes of the errors")
    p90_error: float | None
    worst_error: float | None
    bias: float | None = Field(
        description="median of the errors with their signs: positive where too much is predicted"
    )
    within_range: float | None = Field(
        description="share whose measured step time lies in the predicted range; null for memory"
    )


class SkippedPart(Part):
    """Rows that could not be predicted, and why."""

    rows: int
    kind: Literal["nonsense", "missing", "defect"] = Field(
        description="the row contradicts itself, does not say enough, or the predictor broke on it"
    )
    reason: str
    same_reason: bool = Field(description="false: the reasons differ in their figures, and this is the first one's")
    ids: list[str]


class UnscoredPart(Part):
    """Rows that are predicted, and have no figure to compare with."""

    rows: int
    reason: str


class RankingStatistics(Part):
    """Over groups of measured layouts of one job (`docs/accuracy.md` says which). Null: no such group."""

    groups: int
    layouts: int
    kendall_tau: float | None = Field(description="mean of tau-b between measured and predicted step times")
    mean_regret: float | None = Field(description="measured time of the first choice over the best, less 1")
    worst_regret: float | None
    best_found: float | None = Field(description="share of groups whose first choice is within 2 % of the best")


class RankedGroupPart(Part):
    """The measured layouts of one job."""

    source: str
    model: str
    gpu: str
    gpus: int
    global_batch: int
    seq_len: int
    precision: str
    extrapolated: bool = Field(description="its times follow from fewer timings: it counts for ranking only")
    layouts: int
    kendall_tau: float
    regret: float
    first_choice: str
    first_choice_measured_s: float
    best: str
    best_measured_s: float


class RankingPart(RankingStatistics):
    """All groups together, by place, and one by one, the largest regret first."""

    by_place: dict[str, RankingStatistics] = Field(description="one node | several nodes | extrapolated")
    each: list[RankedGroupPart]


class MemoryVerdictsPart(Part):
    """How well it is known which runs fit."""

    out_of_memory: int = Field(description="runs that ended for lack of memory")
    foreseen: int = Field(description="of these, predicted not to fit")
    ran: int = Field(description="runs that did not")
    refused: int = Field(description="of these, called impossible")


class WorstRowPart(Part):
    """A configuration that is predicted badly, and what the prediction is made of."""

    id: str
    source: str
    gpu: str
    gpus: int
    layout: str
    measured_s: float
    measured_from: str = Field(description="column that the measured step time follows from")
    predicted_s: float
    error: float
    terms: dict[str, float] = Field(description="shares of the predicted step, the largest first")
    assumed: list[str]


class AssumptionPart(Part):
    """What rows did not say."""

    rows: int
    assumption: str


class UnknownColumnPart(Part):
    """A column that was left out."""

    column: str
    nearest: str | None = Field(description="the known column it may be a slip of")


class FitPart(Part):
    """--fit: the figures of one machine from its own rows."""

    written: str | None = Field(description="the machine file; null: none was written")
    refused: str = Field(description="why there is no fit, or why it is not used; empty: it is")
    rows: int | None = Field(description="configurations it rests on")
    median_error_before: float | None
    median_error_left_out: float | None = Field(description="of each row by a fit that never saw it")
    scales: dict[str, float] = Field(description="times slower than predicted: compute, communication, host")
    unseen: list[str] = Field(description="scales that these rows say nothing of")
    gpu: str | None
    links: list[str] = Field(
        description="names for [cluster] intra_node and inter_node under which the rates are found"
    )


class ValidateOutput(Output):
    """validate: every measured configuration of a table, predicted. Rows of which not every figure was measured count
    where they have one; rows whose step time was extrapolated by their authors count in the ranking only."""

    rows: int
    scored: int = Field(description="rows with a prediction and a measured step time or memory")
    extrapolated: int = Field(description="rows among them that count in the ranking only")
    skipped: list[SkippedPart]
    unscored: list[UnscoredPart]
    unknown_columns: list[UnknownColumnPart]
    step_time: ErrorStatistics
    memory: ErrorStatistics
    memory_verdicts: MemoryVerdictsPart
    ranking: RankingPart
    trusted: ErrorStatistics = Field(description="step time of complete rows of trust A and B")
    by_source: dict[str, ErrorStatistics] = Field(description="step time")
    by_gpu: dict[str, ErrorStatistics] = Field(description="step time")
    by_parallelism: dict[str, ErrorStatistics] = Field(description="step time")
    by_trust: dict[str, ErrorStatistics] = Field(description="step time")
    memory_by_source: dict[str, ErrorStatistics]
    assumptions: list[AssumptionPart]
    worst: list[WorstRowPart]
    fit: FitPart | None = Field(default=None, description="null: not asked for")
