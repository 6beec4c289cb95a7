"""What each verb prints with --json: one documented, versioned object a verb. Times are device seconds.

`not recorded` and `unknown` are null, never 0. Every object that carries figures carries their mode.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from meshwright.basics.figures import Mode, Origin

FORMAT: Literal[1] = 1


class Part(BaseModel):
    """A nested object."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Output(Part):
    """What a verb prints."""

    format: Literal[1] = Field(default=FORMAT, description="version of this schema")


class ProblemPart(Part):
    """One broken rule, or one wasteful choice."""

    rule: str
    fields: list[str] = Field(description="keys of the job that it concerns")
    message: str
    legal: list[str] = Field(description="legal neighbours, or what to do instead")


class BatchPart(Part):
    """global = micro_batch * micro_batches * dp; null where the job leaves it free."""

    global_: int = Field(alias="global", description="samples a step")
    seq_len: int
    micro_batch: int | None
    micro_batches: int | None
    dp: int | None
    equation: str


class NearbyPart(Part):
    """A legal layout next to what was asked, or plain data parallelism on the same devices; predicted."""

    mode: Mode
    kind: Literal["neighbour", "plain"]
    layout: str
    micro_batch: int
    micro_batches: int
    step_time_s: float
    tokens_per_s_per_gpu: float
    memory_gib: float = Field(description="of the pipeline rank that needs most")


class CheckOutput(Output):
    """check: is this job or plan valid, and what is wrong or wasteful about it?"""

    valid: bool
    problems: list[ProblemPart]
    warnings: list[ProblemPart]
    batch: BatchPart
    layout: dict[str, Any] = Field(description="the fixed keys of [layout]; null: free")
    nearby: list[NearbyPart] = Field(description="what to choose instead, when a problem asks for another layout")


class MemoryStagePart(Part):
    """One pipeline rank. Every byte count is in GiB."""

    pipeline_rank: int
    stages: list[int]
    parts_gib: dict[str, float] = Field(description="by kind: weights, gradients, optimizer, activations, …")
    total_gib: float
    in_flight: int = Field(description="micro-batches whose activations are alive at the peak")


class MemoryOutput(Output):
    """memory: every byte by pipeline rank and kind."""

    mode: Mode
    stages: list[MemoryStagePart]
    worst_stage: int = Field(description="the pipeline rank that needs most")
    limit_gib: float
    fits: bool
    p_oom: float | None = Field(description="probability of running out of memory; null: not estimated")
    recipe: dict[str, str] = Field(description="the keys of [training] and [layout] that decide the bytes")
    advice: list[str]


class LayoutPart(Part):
    """Every degree and choice of a layout."""

    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int
    vpp: int
    sp: bool
    zero: int
    shard_group: int | None
    schedule: str
    recompute: str
    recompute_layers: int | None
    bucket_mib: float
    overlap: bool
    placement: list[int]


class PlanFigures(Part):
    """The figures of one plan. `terms` sums to the step time; `origins` says where each constant comes from."""

    mode: Mode
    layout: LayoutPart
    micro_batch: int
    micro_batches: int
    stages: list[list[str]]
    step_time_s: float
    step_time_range_s: tuple[float, float]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float | None = Field(description="null: the device's peak is unknown")
    bubble_fraction: float
    exposed_comm_s: float
    stage_compute_s: list[float] = Field(description="busy compute of each pipeline rank in a step")
    memory_gib: float = Field(description="of the pipeline rank that needs most")
    memory_limit_gib: float
    fits: bool
    runnable_by: list[str]
    terms: dict[str, float]
    origins: dict[str, Origin]


class PlanEntry(PlanFigures):
    """One ranked plan, and why it stands where it stands."""

    why: str


class RejectedPart(Part):
    """A family of layouts that was left out."""

    family: str
    count: int
    reason: str


class ChoicePart(Part):
    """One choice of the job named in [search] cost_of, kept while everything else is free; null: no plan keeps it."""

    field: str
    value: Any
    step_time_s: float | None
    cost: float | None = Field(description="share by which the fastest plan with it is slower than without")
    reason: str


class PlanOutput(Output):
    """plan: the ranked plans and why the runners-up lost."""

    evaluated: int
    seconds: float
    plans: list[PlanEntry]
    rejected: list[RejectedPart]
    choices: list[ChoicePart] = Field(default=[], description="what each choice of [search] cost_of costs")


class PredictOutput(PlanEntry, Output):
    """predict: one entry of `plans`."""


class TermPart(Part):
    """One term of the step time in both plans, seconds."""

    term: str
    first_s: float
    second_s: float
    difference_s: float = Field(description="second - first")


class WhyOutput(Output):
    """why: two plans term by term."""

    mode: Mode
    first: str
    second: str
    first_step_time_s: float
    second_step_time_s: float
    terms: list[TermPart]


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
    cost_s_per_step: float
    share: float
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


class InitOutput(Output):
    """init: the job that was written, and what was found on this machine."""

    path: str
    detected: dict[str, Any]


class ResolvedOutput(Output):
    """--print-resolved: every key with its value and origin; null: free, or does not apply."""

    resolved: dict[str, Any]


class ComplaintPart(Part):
    """One thing that is wrong with an input."""

    field: str
    value: str
    rule: str
    legal: str
    file: str


class ErrorPart(Part):
    """`exit_code` is the process's: 1 the answer is no, 2 input or usage, 3 a run failed, 130 interrupted."""

    exit_code: int
    message: str
    complaints: list[ComplaintPart]


class ErrorOutput(Output):
    """What every verb prints instead of its own object when it ends with an error."""

    error: ErrorPart
