"""Every byte of one pipeline rank, by kind.

States follow the recipe (bytes a parameter: weight, gradient, master copy, moments) divided as the ZeRO stage says
(Rajbhandari et al. 2020). Activations are what each unit keeps times the micro-batches alive together in the
schedule's own order of actions. Nothing depends on the number of micro-batches once the pipeline is full.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import MIB
from meshwright.files.prediction import StageMemory
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.model.activations import boundary_bytes, loss_bytes
from meshwright.model.states import StateBytes
from meshwright.predictor import constants, groups
from meshwright.predictor.exchanges import trainable_share
from meshwright.predictor.live import live
from meshwright.predictor.recipe import recipe_of, sharded_extra
from meshwright.predictor.table import Figure, StageTable, by_rank, layout_table, stage_table

Floats = NDArray[np.float64]


def memory_parts(setup: Setup, layout: Layout, batch: Batch, stages: StageTable) -> dict[str, Floats]:
    """Bytes of each kind on each pipeline rank, arrays of length pp."""
    proposal = setup.proposal
    arch, cluster, training = proposal.arch, proposal.cluster, proposal.training
    pp, placement = layout.pp, layout.placement
    recipe, trainable = recipe_of(setup), trainable_share(training)
    dense, expert = by_rank(stages[Figure.DENSE], placement, pp), by_rank(stages[Figure.EXPERT], placement, pp)
    whole = dense + expert
    sharded = whole
    if layout.zero:
        shards = groups.shard_group(cluster, layout).size
        sharded = dense / shards + expert / min(shards, groups.expert_gradient_group(cluster, layout).size)
    gradients = (sharded if layout.zero >= 2 else whole) * recipe.gradient + sharded * sharded_extra(setup, layout.zero)

    local = max(1, batch.seq_len // layout.cp)
    boundary = boundary_bytes(arch, training, batch.micro_batch, local) / (layout.tp if layout.sp else 1)
    kept = stages[Figure.ACTIVATION]
    if layout.recompute == "full":
        kept = kept + np.where(stages.mid_layer, boundary, 0.0)
    activations = live(layout.schedule, layout.placement, batch.micro_batches).peak(kept)
    if layout.recompute != "none":  # one layer at a time comes back whole for its backward
        again = stages.working if layout.recompute == "full" else stages.working / 2
        activations = activations + _most(again, placement, pp)
    logits = np.zeros(pp)
    logits[placement[stages.head_stage]] = loss_bytes(arch, training, batch.micro_batch, local, layout.tp)
    return {
        "weights": (sharded if layout.zero == 3 else whole) * recipe.weight,
        "gradients": gradients * trainable,
        "optimizer": sharded * (recipe.master + recipe.moments) * trainable,
        "activations": activations,
        "logits": logits,
        "communication": _buffers(
            setup, layout, recipe, boundary, _most(stages.largest, placement, pp), gradients * trainable
        ),
        "reserve": np.full(pp, cluster.device.reserved_bytes.value),
    }


def _most(values: Floats, placement: Sequence[int], pp: int) -> Floats:
    """The largest figure among the stages of each pipeline rank."""
    most = np.zeros(pp)
    np.maximum.at(most, np.asarray(placement), values)
    return most


def _buffers(
    setup: Setup, layout: Layout, recipe: StateBytes, boundary: float, largest: Floats, gradients: Floats
) -> Floats:
    """Gradient buckets, gathered parameters, received hidden states, and the library's own buffers.

    Our trainer's gradients lie in their buckets and are counted as gradients; others copy them into at most two
    buckets at a time, never more than there are gradients.
    """
    cluster = setup.proposal.cluster
    total = np.zeros(layout.pp)
    replicas = layout.dp * layout.cp
    if replicas > 1 and layout.zero <= 1 and setup.runnable_by != "meshwright":
        total += np.minimum(2 * layout.bucket_mib * MIB, gradients)
    if replicas > 1 and layout.zero >= 2:  # the gradient of the unit at work, and of the one being reduced
        total += 2 * largest * recipe.gradient
    if replicas > 1 and layout.zero == 3:  # the parameters of the unit at work, and of the one being gathered
        total += 2 * largest * recipe.weight
    if layout.pp > 1:
        total += 2 * boundary
    if cluster.device.kind == "gpu":
        axes = sum(degree > 1 for degree in (replicas, layout.tp, layout.pp, layout.ep))
        total += axes * constants.COMMUNICATOR_BYTES.value
    return total


def stage_memories(layout: Layout, batch: Batch, parts: Mapping[str, Floats]) -> tuple[StageMemory, ...]:
    """The parts as values, one entry a pipeline rank."""
    alive = live(layout.schedule, layout.placement, batch.micro_batches).peak(np.ones(len(layout.placement)))
    return tuple(
        StageMemory(
            rank, layout.stages_of(rank), {kind: round(float(sizes[rank])) for kind, sizes in parts.items()},
            round(float(alive[rank])),
        )
        for rank in range(layout.pp)
    )  # fmt: skip


def rank_memory(setup: Setup, layout: Layout, batch: Batch) -> tuple[StageMemory, ...]:
    """Bytes of one rank of each pipeline rank, by kind: weights, gradients, optimizer, activations, logits,
    communication (buckets, gathered parameters, received hidden states, channel buffers) and reserve (context)."""
    stages = stage_table(layout_table(setup, layout, batch), layout.stages, layout.placement)
    return stage_memories(layout, batch, memory_parts(setup, layout, batch, stages))


def verdict(total: float, limit: float) -> Literal["fits", "tight", "does not fit"]:
    """What to say of a total; tight: transient peaks or fragmentation may still break what fits on paper."""
    if total > limit:
        return "does not fit"
    return "tight" if total > constants.TIGHT.value * limit else "fits"
