"""What `memory` prints with --json. Sizes are GiB unless a name says otherwise; null is unknown, never 0."""

from typing import Any, Literal

from pydantic import Field

from meshwright.basics.figures import Mode
from meshwright.files.outputs import MemoryStagePart, Output, Part
from meshwright.files.prediction import Verdict


class RecipeStatePart(Part):
    """One state of every parameter. With `ranks` 1 every data-parallel rank holds all of it."""

    state: Literal["weight", "8-bit weight", "gradient", "second gradient", "master", "moments", "other"]
    bytes_per_parameter: float
    ranks: int = Field(description="over how many ranks it is sharded")
    expert_ranks: int = Field(description="the same for parameters of experts")
    of: Literal["all parameters", "adapters"]
    on: Literal["device", "host"] = Field(description="host: offloaded to CPU memory")


class RecipePart(Part):
    """How many bytes a parameter costs, and the keys that decide it."""

    text: str = Field(description="in words: 2 weight + 4 gradient + 4 master / 8 + 8 moments / 8 = 7.5 B")
    states: list[RecipeStatePart]
    bytes_per_parameter: float = Field(description="on one device, of dense parameters; those of adapters left out")
    settings: dict[str, str] = Field(description="the keys of [training], [layout] and [batch] behind it")


class AdvicePart(Part):
    """One change (or a pair of changes, where no single one is enough), and what it makes of the fullest rank."""

    change: dict[str, Any] = Field(description="keys of the plan with their new values")
    label: str = Field(description="the same in words, as --set takes it; long lists of stages are called cut anew")
    before_gib: float
    after_gib: float
    saved_gib: float
    spare_gib: float = Field(description="limit minus what it needs then; below 0: still missing")
    p_oom: float | None
    verdict: Verdict
    step_time_change: float | None = Field(description="share by which a step gets longer; null: not predicted")
    runnable_by: list[str]
    as_asked: bool = Field(description="the framework that the job names can run it, or cannot run the plan either")


class TensorPart(Part):
    """A tensor that ranks of the plan allocate."""

    name: str
    shape: list[int]
    dtype: str
    n_bytes: int
    block_bytes: int = Field(description="what the CUDA caching allocator asks the driver for")
    units: list[str] = Field(description="kinds of unit, or what else allocates it")
    pipeline_ranks: list[int]
    why: str
    shrink: str = Field(description="what would make it smaller")
    expected: bool = Field(description="false: only software that leaves the plan's assumptions allocates it")


class MatchPart(TensorPart):
    """A tensor whose size an error would print like the request."""

    exact: bool = Field(description="by its own bytes; else by the allocator's block, which other sizes share")
    read_as: str = Field(description="the unit of the reading that matches")


class OomPart(Part):
    """--oom: which tensors a failed request may have been for."""

    request: str
    request_bytes: int
    read_as: list[str] = Field(description="the units that the size was read in: MB is tried as MiB as well")
    gpu: int | None = Field(description="the device that the message names")
    pipeline_rank: int | None = Field(description="what that device holds; null: not said, or differs between nodes")
    capacity_gib: float | None
    free_gib: float | None
    unused_gib: float | None = Field(description="reserved by PyTorch but unallocated")
    matches: list[MatchPart]
    nearest: list[TensorPart] = Field(description="without a match: the tensors nearest in size")


class FitPart(Part):
    """--fit: the largest of one kind that fits under this layout, all else unchanged."""

    kind: str = Field(description="micro_batch, micro_batch of any global batch, seq_len, layers, hidden")
    safety: Verdict = Field(description="fits: surely enough not to be tight; tight: more likely than not")
    now: int
    largest: int | None = Field(description="null: not even the smallest fits")
    total_gib: float | None
    p_oom: float | None
    next: int | None = Field(description="the next larger one, which does not fit any more; null: none is legal")
    next_gib: float | None
    parameters: int | None = Field(description="of the model, where it is the model that grows")


class TracedCollectivePart(Part):
    """Messages of one kind over one group in a step of one rank."""

    kind: str
    group: str
    count: int
    gib: float


class TracedStagePart(Part):
    """--traced: what the trainer's own step holds on a pipeline rank, beside what was predicted for it."""

    mode: Literal["traced, CPU kernels"]
    pipeline_rank: int
    states_gib: float
    activations_gib: float
    logits_gib: float
    backward_peak_gib: float
    optimizer_peak_gib: float
    in_flight: int
    predicted_states_gib: float
    predicted_activations_gib: float
    predicted_logits_gib: float
    collectives: list[TracedCollectivePart]
    seconds: float


class MemoryOutput(Output):
    """memory: every byte by pipeline rank and kind."""

    mode: Mode
    stages: list[MemoryStagePart]
    worst_stage: int = Field(description="the pipeline rank that needs most")
    limit_gib: float
    fits: bool
    verdict: Verdict = Field(description="the worst of all pipeline ranks")
    p_oom: float | None = Field(description="of the rank most likely to run out of memory; null: not estimated")
    cut: list[list[str]] = Field(
        default=[], description="units of each stage, where the file leaves them open: the slowest stage is the fastest"
    )
    recipe: RecipePart
    advice: list[AdvicePart] = Field(description="the best first")
    oom: OomPart | None = Field(default=None, description="with --oom")
    fit: list[FitPart] = Field(default=[], description="with --fit")
    traced: list[TracedStagePart] = Field(default=[], description="with --traced")
