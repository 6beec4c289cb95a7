"""The tables of `job.toml` and `plan.toml` as they are typed: strict types, no unknown keys, documented keys."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from meshwright.files.setup import DataSource, Pack, Profiling, Runner, Tuning
from meshwright.files.table_types import Count, Degree, LinkName, Parameters, Peaks, Samples, Size, Table, Text
from meshwright.files.tables_layout import LayoutTable, TrainingTable
from meshwright.layout.claims import CLAIMS, Claim

FORMAT = 1

_DATA, _PROFILE, _TUNE = DataSource(), Profiling(), Tuning()


class LatentTable(Table):
    """[model.latent]: multi-head latent attention."""

    kv_rank: Degree
    nope_dim: Degree
    rope_dim: Degree
    value_dim: Degree
    query_rank: Degree | None = Field(default=None, description="left out: queries are not compressed")


class ModelTable(Table):
    """[model]: one of `config`, `name` or `params`, or plain dimensions."""

    config: Text | None = Field(default=None, description="a Hugging Face config.json, or a folder with one")
    name: Text | None = Field(default=None, description="a shape of the catalogue")
    params: Parameters | None = Field(
        default=None, description='a number of parameters such as "1.2B": a shape is proposed'
    )
    label: Text | None = Field(default=None, description="what to call a model of plain dimensions")
    family: Text | None = Field(default=None, description="its Hugging Face model_type; left out: plain")
    layers: Annotated[int, Field(ge=1, le=1000)] | None = None
    hidden: Degree | None = Field(default=None, description="width of the residual stream")
    heads: Degree | None = Field(default=None, description="attention heads")
    kv_heads: Degree | None = Field(default=None, description="key and value heads; left out: as many as heads")
    head_dim: Degree | None = Field(default=None, description="width of a head; left out: hidden / heads")
    ffn_hidden: Degree | None = Field(
        default=None,
        description="width of the feed-forward network, or of one expert; left out: 8/3 (gated) or 4 times hidden",
    )
    vocab: Annotated[int, Field(ge=2, le=10**8)] | None = Field(default=None, description="rows of the embedding")
    gated: bool | None = Field(default=None, description="three feed-forward matrices (SwiGLU) instead of two")
    tied: bool | None = Field(default=None, description="the output matrix is the embedding")
    experts: Annotated[int, Field(ge=0, le=10**5)] | None = Field(default=None, description="experts a layer; 0: dense")
    active_experts: Annotated[int, Field(ge=0, le=10**5)] | None = Field(default=None, description="experts a token")
    shared_experts: Annotated[int, Field(ge=0, le=10**5)] | None = Field(
        default=None, description="experts of every token"
    )
    shared_ffn_hidden: Annotated[int, Field(ge=0, le=10**6)] | None = Field(
        default=None, description="width of all shared experts together; 0: ffn_hidden times their number"
    )
    shared_gate: bool | None = Field(default=None, description="a gate beside the shared experts")
    dense_layers: list[Annotated[int, Field(ge=0, le=1000)]] | None = Field(
        default=None, description="layers of a model with experts that have a dense network instead"
    )
    dense_ffn_hidden: Annotated[int, Field(ge=0, le=10**6)] | None = Field(
        default=None, description="width of those dense networks; 0: ffn_hidden"
    )
    router_bias: bool | None = None
    latent: LatentTable | None = Field(default=None, description="multi-head latent attention: its widths")
    norm: Literal["rms", "layer"] | None = None
    norm_bias: bool | None = Field(default=None, description="false: layer norms without a bias")
    qk_norm: bool | None = None
    qk_norm_weight: bool | None = Field(default=None, description="false: q and k are normed without a learned scale")
    qk_norm_wide: bool | None = Field(default=None, description="norm of q and k over all heads together")
    sinks: bool | None = Field(default=None, description="one learned logit a head beside the scores")
    qkv_bias: bool | None = None
    attention_out_bias: bool | None = None
    ffn_bias: bool | None = None
    positions: Literal["rope", "learned", "alibi"] | None = None
    max_positions: Annotated[int, Field(ge=0, le=10**9)] | None = Field(
        default=None, description="rows of learned positions"
    )
    parallel_residual: bool | None = Field(default=None, description="attention beside feed-forward: one unit a layer")
    layer_norms: Annotated[int, Field(ge=1, le=8)] | None = Field(
        default=None, description="norms of width hidden a layer"
    )
    embed_norm: bool | None = Field(default=None, description="a norm after the embedding")
    head_bias: bool | None = Field(default=None, description="a bias of the output matrix")
    sliding_window: Count | None = Field(default=None, description="tokens that attention looks back")
    chunked: bool | None = Field(
        default=None, description="attention looks back to the start of its chunk of sliding_window tokens"
    )
    global_layers: list[Annotated[int, Field(ge=0, le=1000)]] | None = Field(
        default=None, description="layers without the window, where the others have it"
    )


_NODE = "left out: 8 (4 of GB200, GB300 and GH200), or all when there are fewer"
_PEAKS = "dense TFLOP/s by dtype, over the catalogue's or for a device that it lacks"


class GroupTable(Table):
    """One entry of `groups`: devices of one kind in a mixed cluster."""

    gpu: Text = Field(description="a device of the catalogue")
    gpus: Degree
    gpus_per_node: Degree | None = Field(default=None, description=_NODE)
    intra_node: LinkName | None = Field(default=None, description="left out: what its board has")
    memory_gib: Size | None = Field(default=None, description="GiB a rank may use; left out: what the device has")
    peak_tflops: Peaks | None = Field(default=None, description=_PEAKS)
    bandwidth_gb: Size | None = Field(default=None, description="memory bandwidth in GB/s, likewise")


class ClusterTable(Table):
    """[cluster]: the devices and how they are wired."""

    gpu: Text | None = Field(
        default=None, description='a device of the catalogue, or "local": what this machine has. Left out: local'
    )
    machine: Text | None = Field(
        default=None, description="a machine.toml: measured figures over the catalogue's, or devices that it lacks"
    )
    gpus: Degree | None = Field(default=None, description="number of devices; on this machine left out: all")
    gpus_per_node: Degree | None = Field(default=None, description=_NODE)
    intra_node: LinkName | None = Field(
        default=None, description="link inside a node: catalogue name or GB/s; left out: what the device's board has"
    )
    inter_node: LinkName | None = Field(
        default=None, description='link between nodes: catalogue name, GB/s, or as in "8x HDR200" (adapters a node)'
    )
    memory_gib: Size | None = Field(default=None, description="GiB a rank may use; left out: what the device has")
    peak_tflops: Peaks | None = Field(default=None, description=_PEAKS)
    bandwidth_gb: Size | None = Field(default=None, description="memory bandwidth in GB/s, likewise")
    nics_per_node: Degree | None = Field(default=None, description="network adapters a node; left out: one a device")
    oversubscription: Annotated[float, Field(ge=1, le=1000)] | None = Field(
        default=None, description="of the fabric above the nodes; left out: 1"
    )
    rails: bool | None = Field(default=None, description="adapter i of every node hangs on switch i; left out: true")
    groups: list[GroupTable] | None = Field(
        default=None, min_length=1, max_length=64,
        description="mixed clusters: one entry a kind, in the order of the ranks",
    )  # fmt: skip


class BatchTable(Table):
    """[batch]: global = micro_batch * micro_batches * dp, in samples."""

    global_: Samples = Field(alias="global", description="samples a step")
    seq_len: Count = Field(description="tokens a sample")
    micro_batch: Samples | None = Field(default=None, description="samples of one micro-batch; left out: chosen")
    micro_batches: Samples | None = Field(default=None, description="micro-batches a step on each replica; checked")


class DataTable(Table):
    """[data]: the text to train on."""

    path: Text | None = Field(
        default=_DATA.path,
        description="text, JSON lines, Parquet, a saved `datasets` folder or Megatron's .bin and .idx: a file, a "
        "folder or a pattern such as texts/*.jsonl; left out: Python's own sources",
    )
    vocab: Annotated[int, Field(ge=2, le=10**8)] | None = Field(
        default=_DATA.vocab, description="size of the tokenizer to train; left out: the model's vocabulary"
    )
    limit_mib: Size | None = Field(default=_DATA.limit_mib, description="use at most this much text")
    field: Text = Field(default=_DATA.field, description="key or column that holds a document")
    tokenizer: Text | None = Field(
        default=_DATA.tokenizer,
        description="a tokenizer.json, or a folder with one; left out: the one beside the model's config.json, or one "
        "trained on the text",
    )
    end_of_text: Text | None = Field(
        default=_DATA.end_of_text, description="token put after each document; left out: the tokenizer's own"
    )
    pack: Pack = Field(
        default=_DATA.pack,
        description="stream: attention crosses documents; documents: it does not; pad: one document a sample",
    )
    balance: bool = Field(
        default=_DATA.balance, description="deal samples of unequal length out to replicas by their work"
    )


class SearchTable(Table):
    """[search]: what the planner may propose."""

    runnable_by: Runner = Field(default="meshwright", description="who must be able to run the plan")
    risk: Annotated[float, Field(gt=0, le=0.5)] = Field(
        default=0.1, description="probability of running out of memory that a plan may have, where some have less"
    )
    cost_of: Text | None = Field(
        default=None, description="another job: `plan` tells what each choice of its layout would cost here"
    )


class ProfileTable(Table):
    """[profile]: profiling in a long run."""

    every: Annotated[int, Field(ge=0, le=10**9)] = Field(
        default=_PROFILE.every, description="steps between short profiles; 0: only when asked"
    )
    steps: Annotated[int, Field(ge=1, le=1000)] = Field(default=_PROFILE.steps, description="steps of one profile")
    tools: list[Literal["torch"]] = Field(default=["torch"])


class TuneTable(Table):
    """[tune]: how `tune` measures, and what it may change although the job gives it."""

    change: list[Text] = Field(default=list(_TUNE.change), description="keys of [layout], or micro_batch")
    mode: Literal["measured", "dilated"] | None = Field(
        default=_TUNE.mode, description="left out: dilated when ranks outnumber this machine's cores, else measured"
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = _TUNE.repeats
    steps: Annotated[int, Field(ge=1, le=10**6)] = Field(default=_TUNE.steps, description="steps of a repeat")
    max_changes: Annotated[int, Field(ge=0, le=1000)] = _TUNE.max_changes


def _claim_field(claim: Claim) -> Any:
    if not claim.text:
        kind: Any = bool
    else:
        kind = Literal[claim.legal] if claim.legal else Text
    return (kind | None, Field(default=None, description=claim.meaning))


if TYPE_CHECKING:
    ClaimsTable = Table  # its keys are those of CLAIMS
else:
    ClaimsTable = create_model(
        "ClaimsTable",
        __base__=Table,
        __doc__="[claims]: what the job's author believes; `check` examines it.",
        **{key: _claim_field(claim) for key, claim in CLAIMS.items()},
    )


class StageMemoryTable(Table):
    """One entry of `prediction.memory`: bytes of one pipeline rank by kind."""

    pipeline_rank: Annotated[int, Field(ge=0)]
    stages: list[int]
    in_flight: Annotated[int, Field(ge=0)]
    parts: dict[str, int]
    units: dict[str, int] = Field(default_factory=dict)
    moments: dict[str, int] = Field(default_factory=dict)
    limit: int | None = None
    p_oom: float | None = None
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None


class PredictionTable(Table):
    """[prediction]: what the planner expects of this plan, in device seconds and bytes. Written, never typed."""

    step_time_s: float
    step_time_range_s: Annotated[list[float], Field(min_length=2, max_length=2)]
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float | None = None
    bubble_fraction: float
    exposed_comm_s: float
    stage_compute_s: list[float]
    idle_fraction: list[float]
    memory_limit_bytes: int
    fits: bool
    mode: Literal["measured", "dilated", "emulated", "predicted"] = "predicted"
    terms: dict[str, float] = Field(default_factory=dict)
    origins: dict[str, Literal["measured", "fitted", "data sheet", "guessed"]] = Field(default_factory=dict)
    memory: Annotated[list[StageMemoryTable], Field(min_length=1)]


class JobTables(Table):
    """A whole job or plan. `prediction` belongs to plans."""

    format: int = Field(default=FORMAT, description="version of this file's format")
    model: ModelTable
    cluster: ClusterTable = Field(default_factory=ClusterTable)
    batch: BatchTable
    training: TrainingTable = Field(default_factory=TrainingTable)
    data: DataTable = Field(default_factory=DataTable)
    layout: LayoutTable = Field(default_factory=LayoutTable)
    search: SearchTable = Field(default_factory=SearchTable)
    profile: ProfileTable = Field(default_factory=ProfileTable)
    tune: TuneTable = Field(default_factory=TuneTable)
    claims: ClaimsTable = Field(default_factory=ClaimsTable)
    prediction: PredictionTable | None = None
