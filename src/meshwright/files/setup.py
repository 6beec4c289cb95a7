"""A job as values: what `job.toml` says once it is read, validated and resolved."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from meshwright.layout.proposal import Proposal

Runner = Literal["meshwright", "megatron", "torchtitan", "deepspeed", "any"]
Pack = Literal["stream", "documents", "pad"]


@dataclass(frozen=True, slots=True)
class DataSource:
    """Table [data]. `path` None means the sources of the Python standard library."""

    path: str | None = None
    vocab: int | None = None  # size of the tokenizer to train; None: the model's vocabulary
    limit_mib: float | None = None  # use at most this much text
    field: str = "text"  # the key of JSON lines, the column of Parquet and Arrow tables, that holds a document
    tokenizer: str | None = None  # a tokenizer.json or its folder; None: the one beside the model's config, or trained
    end_of_text: str | None = None  # the token after each document; None: what the tokenizer's own settings say
    pack: Pack = "stream"  # how samples are cut: see trainer/data_sampler.py
    balance: bool = True  # deal samples of unequal length out to replicas and micro-batches by their work


@dataclass(frozen=True, slots=True)
class Profiling:
    """Table [profile]."""

    every: int = 0
    steps: int = 2
    tools: tuple[str, ...] = ("torch",)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Table [tune]: how the loop measures and what it may change although the job gives it."""

    change: tuple[str, ...] = ()  # keys of [layout] (and micro_batch) that tune may change even when given
    mode: Literal["measured", "dilated"] | None = None  # None: dilated when ranks outnumber cores, else measured
    repeats: int = 3
    steps: int = 3  # steps a repeat
    max_changes: int = 2


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything a job says. `proposal` holds model, cluster, batch, recipe and the fixed parts of the layout."""

    name: str
    proposal: Proposal
    data: DataSource = field(default_factory=DataSource)
    profile: Profiling = field(default_factory=Profiling)
    tune: Tuning = field(default_factory=Tuning)
    runnable_by: Runner = "meshwright"
    path: Path | None = None  # the file it came from
    risk: float = 0.1  # probability of running out of memory that a plan may have, where others run less
    cost_of: Path | None = None  # another job, whose choices are priced one at a time
    stack: str = ""  # the software whose habits memory and time follow (predictor/stacks); empty: as runnable_by
    machine: Path | None = None  # the machine.toml that describes the devices, when the job names one
