"""From what stages hold to what pipeline ranks hold: layouts that share a placement become rows together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.predictor.live import Live
from meshwright.predictor.memory_rows import Flags, Rows, Some, States

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the layouts have in common: where the stages lie and where they are cut."""

    placement: tuple[int, ...]
    embed_stage: int
    head_stage: int
    mid_layer: NDArray[np.bool_]  # stages that begin inside a layer

    @property
    def ranks(self) -> int:
        """Pipeline ranks."""
        return max(self.placement) + 1

    @property
    def one_each(self) -> bool:
        """One stage a rank, in order."""
        return len(self.placement) == self.ranks and self.placement == tuple(range(self.ranks))


@dataclass(frozen=True, slots=True)
class StageSums:
    """Parameters and bytes by stage, [entry, stage]. Layout i has those of entry `of[i]`; None: one entry a layout."""

    dense: Floats
    expert: Floats
    ends: Floats  # dense parameters of embedding and head
    adapter: Floats
    kept: Floats  # activation bytes of one micro-batch
    again: Floats  # bytes that recompute brings back for the largest layer
    whole: Floats  # parameters of the largest layer, embedding or head
    layer: Floats  # of the largest layer
    shapes: Floats  # of the largest layer, experts left out
    gradient: Floats  # bytes of gradients of activations, of the unit with most
    tensor: Floats  # parameters of the largest tensor
    cast: Floats  # bytes of matrices cast for a forward that recompute drops
    of: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """What else decides bytes: one value for all layouts, or a column [layout, 1]. Bytes, unless said otherwise."""

    zero: NDArray[np.int64] | int
    shards: Some  # ranks
    expert_shards: Some
    replicas: Some
    accumulated: Flags
    host_optimizer: Flags
    host_parameters: Flags
    micro_batches: NDArray[np.int64] | int
    boundary: Some  # hidden states of one micro-batch on one rank
    full: Flags  # full recompute: only inputs of layers are kept
    gathers: Some  # hidden states that sequence parallelism gathers
    waiting: Some  # scores kept for one micro-batch's backward
    at_loss: Some  # what exists beside them while the loss is at work
    put_off: Some  # gradient of the scores, kept where the head's weight gradient comes later
    split: Flags  # backward in halves: the first frees the scores
    padding: Some  # parameters that padding adds to embedding and head
    head: Some  # parameters of the output matrix
    bucket: Some  # bytes of gradients that travel together
    context: Some


@dataclass(frozen=True, slots=True)
class Manners:
    """What does not differ between layouts of a job."""

    tied: bool
    lora: bool
    keeps_outputs: bool
    gathered_units: float
    spread_vocabulary: bool  # embedding and head are divided over all pipeline ranks
    placeholder: float  # bytes a parameter of one layer's matrices, and of the head's while it is at work
    workspace: float  # bytes
    packs: bool  # gradients are copied into messages when they leave, and lie in the exchange's buffers until then
    gloo: bool  # messages travel by gloo, not by a library of the devices


@dataclass(frozen=True, slots=True)
class Alive:
    """Micro-batches alive where a rank's activations peak, [layout or 1, rank]: of all its stages, of the stage with
    most, and of the head's stage; `held` bytes. `counts[rank, stage]` of the first layout."""

    held: Floats
    together: Floats
    most: Floats
    at_head: Floats  # [layout or 1]
    counts: Floats


def alive_of(pipeline: Pipeline, lives: Live | Floats, kept: Floats, waiting: Some) -> Alive:
    """The moment with the most bytes of activations and waiting scores on each rank.

    `lives` are the schedule's moments, or with one stage a rank the counts themselves, [layout or 1, rank]."""
    head, head_rank = pipeline.head_stage, pipeline.placement[pipeline.head_stage]
    if not isinstance(lives, Live):
        return Alive(kept * lives, lives, lives, lives[:, head], np.diag(lives[0]))
    weights = kept.copy()
    weights[:, head : head + 1] += waiting
    held = weights @ lives.counts.T
    ends = [*lives.first[1:].tolist(), held.shape[1]]
    rows = np.stack(
        [first + held[:, first:end].argmax(axis=1) for first, end in zip(lives.first.tolist(), ends, strict=True)],
        axis=1,
    )
    counts = lives.counts
    return Alive(
        np.take_along_axis(kept @ counts.T, rows, axis=1), counts.sum(axis=1)[rows], counts.max(axis=1)[rows],
        counts[rows[:, head_rank], head], counts[rows[0]],
    )  # fmt: skip


def rows_of(
    pipeline: Pipeline, lives: Live | Floats, sums: StageSums, choices: Choices, manners: Manners
) -> tuple[Rows, Alive, Floats]:
    """The rows [layout, rank]; what is alive; and what each stage keeps of one micro-batch, [layout, stage]."""
    stages, head = len(pipeline.placement), pipeline.head_stage
    several = pipeline.ranks > 1
    kept = _spread(sums.kept, sums.of)
    if pipeline.mid_layer.any():  # a layer cut in two: the input of its other half
        kept = kept + np.where(choices.full, choices.boundary, 0.0) * pipeline.mid_layer
    if manners.keeps_outputs and several:
        kept = kept + choices.boundary * (np.arange(stages) != head)
    alive = alive_of(pipeline, lives, kept, choices.waiting)
    head_rank = pipeline.placement[head]
    here = np.arange(pipeline.ranks) == head_rank
    if manners.spread_vocabulary:
        here = np.full(pipeline.ranks, 1 / pipeline.ranks)
    others = np.maximum(alive.at_head[:, None] - 1, 0.0)  # micro-batches beside the one at work

    def total(by_stage: Floats) -> Floats:
        return _spread(_sum(pipeline, by_stage), sums.of)

    def most(by_stage: Floats) -> Floats:
        return _spread(_most(pipeline, by_stage), sums.of)

    cast = total(sums.cast) * here if sums.cast.any() else 0.0
    left: Some = np.where(choices.split, choices.put_off, choices.waiting) * others if others.any() else 0.0
    scores = choices.waiting + choices.at_loss + left + manners.placeholder * choices.head

    dense = total(sums.dense)
    if np.any(choices.padding):
        embed_rank = pipeline.placement[pipeline.embed_stage]
        shared = embed_rank == head_rank and manners.tied
        dense = dense + choices.padding * (np.arange(pipeline.ranks) == embed_rank)
        dense = dense if shared else dense + choices.padding * here
    ends = total(sums.ends)
    if manners.spread_vocabulary:
        dense, ends = dense - ends + ends.mean(axis=1, keepdims=True), np.broadcast_to(
            ends.mean(axis=1, keepdims=True), ends.shape
        )  # fmt: skip
    states = States(
        dense, total(sums.expert), ends, total(sums.adapter), manners.lora, choices.zero, choices.shards,
        choices.expert_shards, choices.accumulated, choices.host_optimizer, choices.host_parameters,
    )  # fmt: skip
    return Rows(
        states, most(sums.whole), most(sums.layer), manners.gathered_units, choices.replicas,
        alive.held, alive.held / np.maximum(alive.together, 1.0), alive.most < choices.micro_batches,
        most(sums.again), most(sums.gradient), scores * here, left * here, cast,
        (manners.placeholder * most(sums.shapes) if manners.placeholder else 0.0) + manners.workspace,
        (2 * choices.boundary if several else 0.0) + choices.gathers, choices.bucket, choices.context,
        most(sums.tensor) if manners.packs else 0.0, manners.packs, manners.gloo,
    ), alive, kept  # fmt: skip


def _spread(entries: Floats, of: NDArray[np.int64] | None) -> Floats:
    return entries if of is None else entries[of]


def _sum(pipeline: Pipeline, by_stage: Floats) -> Floats:
    """Sums by pipeline rank, [layout, rank]."""
    if pipeline.one_each:
        return by_stage
    holds = np.equal.outer(np.asarray(pipeline.placement), np.arange(pipeline.ranks)).astype(np.float64)
    total: Floats = by_stage @ holds
    return total


def _most(pipeline: Pipeline, by_stage: Floats) -> Floats:
    """The largest figure among the stages of each pipeline rank, [layout, rank]."""
    if pipeline.one_each:
        return by_stage
    by_rank = np.argsort(pipeline.placement, kind="stable")
    first = np.searchsorted(np.asarray(pipeline.placement)[by_rank], np.arange(pipeline.ranks))
    most: Floats = np.maximum.reduceat(by_stage[:, by_rank], first, axis=1)
    return most
