"""What each verb prints with --json: one documented, versioned object a verb. Times are device seconds.

`not recorded` and `unknown` are null, never 0. Every object that carries figures carries their mode.
"""

from typing import Any, Literal

from pydantic import Field

from meshwright.basics.figures import Mode, Origin
from meshwright.files.outputs_base import FORMAT as FORMAT
from meshwright.files.outputs_base import Output as Output
from meshwright.files.outputs_base import Part as Part
from meshwright.files.outputs_plan import BucketPart, BudgetPart, ParetoPart, RelaxationPart


class ProblemPart(Part):
    """One broken rule, or one wasteful choice."""

    rule: str
    fields: list[str] = Field(description="keys of the job that it concerns, as they are written")
    origins: list[str] = Field(description="where the value of each comes from: user, file, default or detected")
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
    p_oom: float | None = Field(default=None, description="probability of running out of memory; null: not estimated")


class ModelPart(Part):
    """The model that was read or proposed."""

    name: str
    text: str = Field(description="its shape and size in words")
    parameters: int = Field(description="exact, a tied matrix once")
    active_parameters: int = Field(description="of them, those that one token passes through")
    note: str = Field(description="what of its config.json is left out; empty: nothing")


class CheckOutput(Output):
    """check: is this job or plan valid, and what is wrong or wasteful about it?"""

    valid: bool
    problems: list[ProblemPart]
    warnings: list[ProblemPart]
    model: ModelPart
    batch: BatchPart
    layout: dict[str, Any] = Field(description="the fixed keys of [layout]; null: free")
    nearby: list[NearbyPart] = Field(description="what to choose instead, when a problem asks for another layout")
    undecided: list[str] = Field(
        default=[], description="degrees left open: whether any choice of them fits in memory is for `plan` to find out"
    )
    thriftiest: list[str] = Field(
        default=[],
        description="keys left open whose thriftiest choice memory was judged with, where degrees are fixed",
    )


class MemoryStagePart(Part):
    """One pipeline rank. Every byte count is in GiB."""

    pipeline_rank: int
    stages: list[int]
    parts_gib: dict[str, float] = Field(description="by kind: weights, gradients, optimizer, activations, …")
    total_gib: float
    total_gb: float = Field(description="the same in GB (10^9 bytes)")
    range_gib: tuple[float, float] | None = Field(description="within which nine of ten such runs lie; null: unknown")
    limit_gib: float
    p_oom: float | None = Field(description="probability of running out of memory; null: not estimated")
    verdict: Literal["fits", "tight", "does not fit"]
    in_flight: int = Field(description="micro-batches whose activations are alive at the peak")
    units_gib: dict[str, float] = Field(description="activations at the peak by kind of unit")
    moments_gib: dict[str, float] = Field(description="the total in backward and in the optimizer step")


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
    gradient_exchange: str | None = Field(default=None, description="null: as usual for the ZeRO stage")
    offload: str = "none"
    vocab_parallel: bool = True
    loss_chunk: int | None = None
    vocab_multiple: int = 1
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
    hfu: float | None = Field(default=None, description="as mfu, with what recompute repeats; null: unknown")
    bubble_fraction: float
    exposed_comm_s: float
    exposed_comm_by_group_s: dict[str, float] = Field(default={}, description="by group: tp, cp, ep, pp, dp")
    traffic_gb: dict[str, float] | None = Field(
        default=None, description="GB (10^9) that the mean device sends in a step, by group; null: not counted"
    )
    between_nodes_gb: float | None = Field(default=None, description="GB that one node sends to others in a step")
    stage_compute_s: list[float] = Field(description="busy compute of each pipeline rank in a step")
    memory_gib: float = Field(description="of the pipeline rank that needs most")
    memory_limit_gib: float
    p_oom: float | None = Field(description="probability that its fullest rank runs out of memory; null: not estimated")
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
    pareto: list[ParetoPart] = Field(default=[], description="with --pareto: from the fastest to the leanest")
    sensitivity: list[RelaxationPart] = Field(default=[], description="with --sensitivity: what gains most first")


class PredictOutput(PlanEntry, Output):
    """predict: one entry of `plans`."""

    budget: BudgetPart | None = Field(default=None, description="with --tokens")
    buckets: list[BucketPart] = Field(default=[], description="with --buckets")


class TermPart(Part):
    """One term of the step time in both plans, seconds."""

    term: str
    first_s: float
    second_s: float
    difference_s: float = Field(description="second - first")


class DifferencePart(Part):
    """A choice that is not the same in both plans."""

    field: str
    first: Any
    second: Any


class WhyOutput(Output):
    """why: two plans term by term."""

    mode: Mode
    first: str
    second: str
    first_step_time_s: float
    second_step_time_s: float
    differs: list[DifferencePart] = Field(default=[], description="the choices in which the plans differ")
    terms: list[TermPart]


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
