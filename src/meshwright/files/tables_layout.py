"""The tables [training] and [layout]: how a model is trained, and how it is divided."""

from typing import Annotated, Literal

from pydantic import Field

from meshwright.files.table_types import Count, Degree, Share, Size, Table, Text
from meshwright.layout.degrees import Exchange, Offload, Recompute, Schedule
from meshwright.model.training import Optimizer, Precision, Task, Training

_TRAINING = Training()


class TrainingTable(Table):
    """[training]: the recipe."""

    task: Task = _TRAINING.task
    precision: Precision = _TRAINING.precision
    optimizer: Optimizer = _TRAINING.optimizer
    gradient_dtype: Literal["fp32", "bf16", "fp16"] = Field(
        default=_TRAINING.gradient_dtype, description="in which gradients are accumulated and exchanged"
    )
    lr: Annotated[float, Field(gt=0, le=1e3)] = Field(default=_TRAINING.lr, description="peak learning rate")
    lr_schedule: Literal["constant", "cosine", "linear", "wsd"] = Field(
        default=_TRAINING.lr_schedule, description="after the warm-up; wsd: constant, then down to 0 at the end"
    )
    lr_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=_TRAINING.lr_decay, description="wsd: share of the steps in which the rate falls to 0"
    )
    warmup: Annotated[int, Field(ge=0, le=10**9)] = Field(
        default=_TRAINING.warmup, description="steps of linear warm-up"
    )
    weight_decay: Annotated[float, Field(ge=0, le=10)] = _TRAINING.weight_decay
    betas: Annotated[list[Share], Field(min_length=2, max_length=2)] = Field(default=list(_TRAINING.betas))
    clip: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=_TRAINING.clip, description="global gradient norm; 0: off"
    )
    loss_scale: Annotated[float, Field(gt=0, le=2.0**32)] | None = Field(
        default=_TRAINING.loss_scale, description="fp16 only; left out: dynamic"
    )
    lora_rank: Annotated[int, Field(ge=1, le=10**5)] = Field(
        default=_TRAINING.lora_rank, description="rank of the adapters of task lora"
    )
    lora_targets: Literal["attention", "all"] = Field(
        default=_TRAINING.lora_targets, description="matrices with an adapter: of attention, or all of a layer"
    )
    expert_imbalance: Annotated[float, Field(ge=1, le=10**5)] = Field(
        default=_TRAINING.expert_imbalance, description="tokens of the fullest expert rank over the mean"
    )
    steps: Count = _TRAINING.steps
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = _TRAINING.seed


class LayoutTable(Table):
    """[layout]: what is given is fixed, what is not is searched."""

    dp: Degree | None = Field(default=None, description="data degree")
    tp: Degree | None = Field(default=None, description="tensor degree")
    pp: Degree | None = Field(default=None, description="pipeline degree")
    cp: Degree | None = Field(default=None, description="context degree")
    ep: Degree | None = Field(default=None, description="expert degree, carved out of dp * cp")
    etp: Degree | None = Field(default=None, description="tensor degree inside experts")
    vpp: Degree | None = Field(default=None, description="model chunks a pipeline rank")
    sp: bool | None = Field(default=None, description="sequence parallelism inside the tensor group")
    zero: Annotated[int, Field(ge=0, le=3)] | None = Field(default=None, description="ZeRO stage")
    shard_group: Degree | None = Field(
        default=None, description="ranks that share one set of shards; left out: all of dp"
    )
    schedule: Schedule | None = None
    recompute: Recompute | None = Field(default=None, description="which activations are computed again")
    recompute_layers: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="full recompute for the first k layers of a stage only"
    )
    bucket_mib: Size | None = Field(default=None, description="size of a bucket of the gradient exchange")
    overlap: bool | None = Field(default=None, description="exchange gradients during backward")
    gradient_exchange: Exchange | None = Field(
        default=None, description="left out: once a step under ZeRO-0 and 1, in each micro-batch under ZeRO-2 and 3"
    )
    offload: Offload | None = Field(
        default=None, description="to CPU memory: optimizer states, or parameters and gradients as well"
    )
    vocab_parallel: bool | None = Field(default=None, description="logits and loss divided over the tensor group")
    loss_chunk: Count | None = Field(default=None, description="tokens whose logits exist at one time; left out: all")
    vocab_multiple: Degree | None = Field(
        default=None, description="embedding rows are padded to a multiple of this times tp"
    )
    stages: list[list[Text]] | None = Field(
        default=None, description='units of each stage: [["embed", "layers.0-5"], ["layers.6-11", "head"]]'
    )
    placement: list[Annotated[int, Field(ge=0, le=10**6)]] | None = Field(
        default=None, description="the pipeline rank that holds each stage; left out: as the schedule has it"
    )
