"""A complete parallel layout."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

Schedule = Literal["gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zbv", "dualpipev"]
Recompute = Literal["none", "selective", "full"]
Exchange = Literal["step", "micro-batch"]
Offload = Literal["none", "optimizer", "parameters"]

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)


@dataclass(frozen=True, slots=True)
class Layout:
    """Every choice of a layout, complete. World size is `dp * tp * pp * cp`; experts are carved out of dp * cp.

    `stages[i]` lists the units of stage i in forward order; `placement[i]` is the pipeline rank that holds it.
    With one stage a pipeline rank `placement` is `(0, 1, ..., pp - 1)`.
    """

    stages: tuple[tuple[str, ...], ...]
    placement: tuple[int, ...]
    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    sp: bool = False
    zero: int = 0
    shard_group: int | None = None  # HSDP: ranks that share one set of shards; None means all of dp
    schedule: Schedule = "1f1b"
    recompute: Recompute = "none"
    recompute_layers: int | None = None  # full recompute for the first k layers of a stage only
    bucket_mib: float = 25.0  # gradient exchange in buckets of this size
    overlap: bool = True  # gradient exchange during backward
    gradient_exchange: Exchange | None = None  # None: as usual for the ZeRO stage, see `exchange`
    offload: Offload = "none"  # to CPU memory: optimizer states and master copies; or parameters and gradients as well
    vocab_parallel: bool = True  # logits and loss divided over the tensor group
    loss_chunk: int | None = None  # tokens whose logits exist at one time; None: those of the whole micro-batch
    vocab_multiple: int = 1  # embedding rows are padded to a multiple of this times tp

    @property
    def exchange(self) -> Exchange:
        """When gradients travel. ZeRO-0 and 1: once a step. ZeRO-2 and 3: in every micro-batch, so that only a shard
        is accumulated; "step" there keeps a whole gradient on every rank until the last micro-batch."""
        return self.gradient_exchange or ("step" if self.zero <= 1 else "micro-batch")

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp * self.cp

    def stages_of(self, pipeline_rank: int) -> tuple[int, ...]:
        """The stages that one pipeline rank holds, in forward order."""
        return tuple(stage for stage, rank in enumerate(self.placement) if rank == pipeline_rank)


class Degrees(Protocol):
    """The degrees that a layout is called by."""

    @property
    def dp(self) -> int: ...
    @property
    def tp(self) -> int: ...
    @property
    def pp(self) -> int: ...
    @property
    def cp(self) -> int: ...
    @property
    def ep(self) -> int: ...


def degrees_text(of: Degrees) -> str:
    """`dp 2 × tp 2 × pp 2`: the degrees above 1; `one device` when there is none."""
    named = (("dp", of.dp), ("tp", of.tp), ("pp", of.pp), ("cp", of.cp), ("ep", of.ep))
    return " × ".join(f"{name} {degree}" for name, degree in named if degree > 1) or "one device"


def describe(layout: Layout) -> str:
    """One line for people: `dp 2 × tp 2 × pp 2, 1f1b, recompute full`."""
    parts = [degrees_text(layout)]
    if layout.pp > 1:
        parts.append(layout.schedule + (f" ({layout.vpp} chunks)" if layout.vpp > 1 else ""))
    if layout.sp:
        parts.append("sp")
    if layout.zero:
        inside = layout.shard_group not in (None, layout.dp * layout.cp)
        parts.append(f"ZeRO-{layout.zero}" + (f" in groups of {layout.shard_group}" if inside else ""))
    if layout.recompute != "none":
        some = "" if layout.recompute_layers is None else f" of {layout.recompute_layers} layers a stage"
        parts.append(f"recompute {layout.recompute}{some}")
    return ", ".join(parts)
