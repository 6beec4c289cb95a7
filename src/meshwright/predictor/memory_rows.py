"""Every byte of many pipeline ranks at once: one rank is one row, a plan is a few rows, a search hundreds of thousands.

States follow the recipe (bytes a parameter: weight, gradient, master copy, moments) divided as the ZeRO stage says
(Rajbhandari et al. 2020). Two moments compete for the peak: the backward with the most activations alive, and the
optimizer step, which has temporaries of its own and no activations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.predictor.memory_messages import NO_MESSAGES, Messages, Travelling, copied, packed
from meshwright.predictor.recipe import Recipe

Floats = NDArray[np.float64]
Some = Floats | float
"""One value for all rows, or one a row."""
Flags = NDArray[np.bool_] | bool


@dataclass(frozen=True, slots=True)
class States:
    """Parameters that a rank holds when nothing is sharded, and how they are sharded."""

    dense: Some  # embedding and head included
    expert: Some
    ends: Some  # embedding and head
    adapter: Some  # trainable ones beside the frozen ones: with any, only they have gradients and moments
    lora: bool
    zero: NDArray[np.int64] | int
    shards: Some  # ranks that share one set of shards
    expert_shards: Some
    accumulated: Flags  # a whole gradient is kept until the last micro-batch although only a shard is needed
    host_optimizer: Flags  # moments and master copies lie in CPU memory
    host_parameters: Flags  # parameters and gradients as well


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Bytes by kind; `step` exists during the optimizer step only."""

    weights: Some
    gradients: Some
    master: Some
    optimizer: Some
    step: Some


def state_sizes(of: States, recipe: Recipe) -> StateSizes:
    """Bytes of training state on each row. Linear in the parameters: of the sums of several ranks it gives the sum."""
    zero, shards = of.zero, of.shards
    experts = np.minimum(shards, of.expert_shards)
    whole, part = of.dense + of.expert, of.dense / shards + of.expert / experts
    trained, trained_part, ends = whole, part, of.ends / shards
    if of.lora:
        trained, trained_part, ends = of.adapter, of.adapter / shards, 0.0
        whole, part = whole + trained, part + trained_part
    updated = np.where(np.greater_equal(zero, 1), trained_part, trained)
    ends = np.where(np.greater_equal(zero, 1), ends, 0.0 if of.lora else of.ends)
    kept = np.where(np.greater_equal(zero, 2), trained_part, trained) * recipe.gradient
    kept = kept + np.where(np.greater_equal(zero, 2) & np.asarray(of.accumulated), trained * recipe.gradient, 0.0)
    if recipe.second_gradient:
        kept = kept + np.where(np.equal(zero, 2), trained_part * recipe.second_gradient, 0.0)
    on_device, held_here = np.logical_not(of.host_optimizer), np.logical_not(of.host_parameters)
    weights = np.where(np.equal(zero, 3), part, whole) * (recipe.weight + recipe.quantised)
    moments = updated * recipe.matrix_moments + ends * (recipe.end_moments - recipe.matrix_moments)
    kept = kept + trained * recipe.unsharded + updated * recipe.sharded
    return StateSizes(
        weights * held_here, kept * held_here, updated * (recipe.master * on_device),
        moments * on_device, updated * (recipe.step * on_device),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """What decides the bytes of a pipeline rank beside its states, one value a row or one for all. Bytes, unless said
    otherwise."""

    states: States
    whole: Some  # parameters of the largest layer, embedding or head: what is gathered together
    layer: Some  # of the largest layer
    gathered_units: float
    replicas: Some  # ranks that hold the same parameters
    held: Some  # activations alive in backward
    once: Some  # of them, those of one micro-batch
    filled: Flags  # a backward is over when the most activations are alive: gradients exist by then
    recomputed: Some
    gradient: Some  # of activations, while the unit with most is at work
    logits: Some  # while the loss and the head are at work
    logits_left: Some  # of micro-batches that wait, while another one's layers are at work
    cast: Some  # matrices cast for the forward, while the loss is at work
    beside: Some  # placeholders of gradients and workspaces of libraries
    received: Some  # hidden states on their way between stages, and gathered ones
    bucket: Some  # gradients that travel together
    context: Some
    tensor: Some = 0.0  # parameters of the largest tensor: it makes a bucket of its own
    packs: bool = False  # as our trainer's `parallel/buckets.py` does
    gloo: bool = False  # messages travel by gloo, not by a library of the devices


@dataclass(frozen=True, slots=True)
class RowParts:
    """Bytes by kind in backward and in the optimizer step; `context` is outside the tensor allocator."""

    backward: dict[str, Some]
    step: dict[str, Some]
    context: Some

    def totals(self) -> tuple[Some, Some]:
        """Allocated bytes of both moments."""
        return sum(self.backward.values()), sum(self.step.values())

    def allocated(self) -> Some:
        """Allocated bytes of each row at its peak."""
        return np.maximum(*self.totals())


def row_parts(rows: Rows, recipe: Recipe) -> RowParts:
    """Every byte of every row."""
    sizes = state_sizes(rows.states, recipe)
    zero, away = rows.states.zero, np.asarray(rows.states.host_parameters)
    several = np.asarray(np.greater(rows.replicas, 1))
    # The unit at work and the one fetched ahead (or being reduced) are whole.
    pair = rows.whole + (rows.gathered_units - 1) * np.minimum(rows.whole, rows.layer)
    streamed = (several & np.equal(zero, 3)) | away
    reduced = (several & np.greater_equal(zero, 3 if rows.packs else 2)) | away
    trained = rows.states.adapter if rows.states.lora else pair
    buffers = np.where(reduced, np.minimum(pair, trained) * recipe.gradient, 0.0)
    sent = _messages(rows, several, sizes.gradients, recipe) if several.any() else NO_MESSAGES
    now = sizes.gradients
    if not recipe.whole_gradients:  # before the first backward there are none: they grow as activations go
        now = np.where(rows.filled, now, np.maximum(now - rows.once, 0.0))
    states = {"weights": sizes.weights, "master": sizes.master, "optimizer": sizes.optimizer}
    # Two moments of a backward compete: the loss and the head at work, then the layer that needs most.
    at_loss = np.greater(
        rows.logits + rows.cast + sent.at_loss,
        rows.recomputed + rows.gradient + rows.logits_left + sent.in_layers,
    )  # fmt: skip
    buffers = buffers + np.where(at_loss, sent.at_loss, sent.in_layers)
    backward: dict[str, Some] = {
        **states, "gradients": now, "gathered": np.where(streamed, pair * recipe.compute, 0.0),
        "activations": rows.held, "recomputed": np.where(at_loss, 0.0, rows.recomputed),
        "logits": np.where(at_loss, rows.logits, rows.logits_left), "communication": buffers + rows.received,
        "working": np.where(at_loss, rows.cast, rows.gradient) + rows.beside,
    }  # fmt: skip
    step = {
        **states, "gradients": sizes.gradients, "step": sizes.step, "working": rows.beside,
        "communication": sent.at_step,
    }  # fmt: skip
    return RowParts(backward, step, rows.context)


def _messages(rows: Rows, several: NDArray[np.bool_], kept: Some, recipe: Recipe) -> Messages:
    """What gradients travel in, 0 where there are no `several` replicas."""
    of = rows.states
    whole = (of.adapter if of.lora else of.dense + of.expert) * recipe.gradient
    travelling = Travelling(
        of.zero, of.shards, whole, rows.bucket, rows.tensor * recipe.gradient, rows.once, rows.filled,
        rows.gloo,
    )  # fmt: skip
    found = packed(travelling) if rows.packs else copied(travelling, kept)
    return Messages(*(np.where(several, size, 0.0) for size in (found.at_loss, found.in_layers, found.at_step)))
