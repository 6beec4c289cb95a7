"""Every byte of each pipeline rank of one plan, by kind, and how likely it runs out of memory.

The formulas are those of `memory_rows.py`; here a layout becomes rows: what its stages hold, how many micro-batches
are alive together in the schedule's own order of actions, and how the groups of its ranks share the states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import MIB
from meshwright.cluster.mixed import memory_limits
from meshwright.files.prediction import DOES_NOT_FIT, StageMemory
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.model.activations import boundary_bytes
from meshwright.model.shapes import padded_vocab
from meshwright.predictor import groups
from meshwright.predictor.compute import share_of
from meshwright.predictor.live import live
from meshwright.predictor.memory_rows import RowParts, Rows, States, row_parts
from meshwright.predictor.memory_units import scores_of
from meshwright.predictor.recipe import Recipe, full_recipe
from meshwright.predictor.running_out import Spread, p_oom, quantile, spread_of
from meshwright.predictor.stacks import Stack, stack_of
from meshwright.predictor.table import KINDS, Figure, Largest, StageTable, by_rank, layout_table, stage_table

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Habits:
    """What decides bytes beside the layout: the software's habits, its recipe, and how its memory spreads."""

    stack: Stack
    recipe: Recipe
    spread: Spread

    @property
    def over(self) -> float:
        """The median of what a rank needs, over what it allocates."""
        return quantile(self.spread, 0.5)


def habits_of(setup: Setup) -> Habits:
    """The habits of the software that runs a job."""
    return Habits(stack_of(setup), full_recipe(setup), spread_of(setup))


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes of a plan's pipeline ranks, [rank] each. `held_counts[rank, stage]` micro-batches are alive where the
    most activations are."""

    parts: RowParts
    allocated: Floats
    needs: Floats  # the median of what each rank needs: allocated, reserve and context
    limits: Floats
    held_counts: Floats
    kept: Floats  # bytes of one micro-batch's activations by stage
    stages: StageTable
    spread: Spread

    @property
    def fits(self) -> bool:
        """No rank is more likely to run out than not."""
        return bool((self.needs <= self.limits).all())

    @property
    def excess(self) -> float:
        """Bytes by which the worst rank is beyond its limit; negative: room left."""
        return float((self.needs - self.limits).max())

    def by_unit(self) -> Floats:
        """Activation bytes at the peak of backward, [rank, `KINDS`]. What a stage keeps beside its units' own tensors
        (the input of a layer cut in two, its output) counts with its first unit."""
        by_kind = self.stages.kept_by_kind()
        first = self.stages.kinds[np.cumsum(self.stages.units) - self.stages.units]
        by_kind[np.arange(len(first)), first] += self.kept - self.stages[Figure.ACTIVATION]
        found: Floats = self.held_counts @ by_kind
        return found

    def by_kind(self) -> dict[str, Floats]:
        """Bytes of each kind on each rank at its peak, reserve and context included."""
        backward, step = self.parts.totals()
        late = np.greater(step, backward)
        size = len(self.limits)
        found = {}
        for kind in dict.fromkeys([*self.parts.backward, *self.parts.step]):
            sizes = np.where(late, self.parts.step.get(kind, 0.0), self.parts.backward.get(kind, 0.0))
            found[kind] = np.broadcast_to(sizes, size)
        context = np.broadcast_to(self.parts.context, size)
        return {**found, "reserve": self.needs - self.allocated - context, "context": context}


def memory_of(setup: Setup, layout: Layout, batch: Batch, stages: StageTable, habits: Habits | None = None) -> Memory:
    """The bytes of each pipeline rank of a layout, from the sums of its stages."""
    habits = habits or habits_of(setup)
    rows, counts, kept = _rows(setup, layout, batch, stages, habits)
    parts = row_parts(rows, habits.recipe)
    allocated = np.broadcast_to(parts.allocated(), layout.pp)
    limits = np.array(memory_limits(setup.proposal.cluster, layout.pp), np.float64)
    needs = allocated * habits.over + parts.context
    return Memory(parts, allocated, needs, limits, counts, kept, stages, habits.spread)


def _rows(
    setup: Setup, layout: Layout, batch: Batch, stages: StageTable, habits: Habits
) -> tuple[Rows, Floats, Floats]:
    """The rows of a layout; micro-batches alive [rank, stage] where they peak; bytes that each stage keeps of one."""
    proposal, stack, pp = setup.proposal, habits.stack, layout.pp
    arch, training = proposal.arch, proposal.training
    share, placement = share_of(layout, batch), layout.placement
    whole = float(boundary_bytes(arch, training, batch.micro_batch, max(1, batch.seq_len // layout.cp)))
    boundary = whole / (layout.tp if layout.sp else 1)
    waiting, at_loss = scores_of(arch, training, share, stack, layout.vocab_parallel, layout.loss_chunk)
    padding = padding_of(setup, layout)
    if arch.vocab:
        rows = padded_vocab(arch.vocab, layout.vocab_multiple, layout.tp) / padded_vocab(arch.vocab, 1, layout.tp)
        waiting, at_loss = waiting * rows, at_loss * rows

    kept = stages[Figure.ACTIVATION]
    if layout.recompute == "full":
        kept = kept + np.where(stages.mid_layer, boundary, 0.0)
    if stack.keeps_outputs and pp > 1:
        kept = kept + np.where(np.arange(len(kept)) == stages.head_stage, 0.0, boundary)
    with_scores = kept.copy()
    with_scores[stages.head_stage] += waiting
    _, counts = live(layout.schedule, placement, batch.micro_batches).fullest(with_scores)
    head_rank = placement[stages.head_stage]
    logits = np.zeros(pp)
    logits[head_rank] = waiting * counts[head_rank, stages.head_stage] + at_loss
    held, alive = counts @ kept, counts.sum(axis=1)
    filled = counts.max(axis=1) < batch.micro_batches

    shared = placement[stages.embed_stage] == placement[stages.head_stage]
    dense = stages[Figure.DENSE].copy()
    dense[stages.embed_stage] += padding
    dense[stages.head_stage] += 0.0 if shared and arch.tied else padding
    largest = np.zeros((pp, len(Largest)))
    np.maximum.at(largest, np.asarray(placement), stages.largest)
    received = 2 * boundary if pp > 1 else 0.0
    if stack.tp_gathered and layout.sp and layout.tp > 1:
        received += whole
    states = States(
        by_rank(dense, placement, pp), by_rank(stages[Figure.EXPERT], placement, pp),
        by_rank(stages.ends, placement, pp), by_rank(stages[Figure.ADAPTER], placement, pp),
        training.task == "lora", layout.zero, groups.shard_group(proposal.cluster, layout).size,
        groups.expert_gradient_group(proposal.cluster, layout).size,
        layout.zero >= 2 and layout.exchange == "step", layout.offload != "none", layout.offload == "parameters",
    )  # fmt: skip
    return Rows(
        states, largest[:, Largest.WHOLE], largest[:, Largest.LAYER], stack.gathered_units, layout.dp * layout.cp,
        held, held / np.maximum(alive, 1.0), filled, largest[:, Largest.AGAIN], logits, received,
        bucket_bytes(stack, layout.bucket_mib), context_bytes(setup, stack, layout),
    ), counts, kept  # fmt: skip


def padding_of(setup: Setup, layout: Layout) -> float:
    """Parameters that padding adds to the embedding, or to the output matrix, of one tensor rank."""
    vocab, tp = setup.proposal.arch.vocab, layout.tp
    extra = padded_vocab(vocab, layout.vocab_multiple, tp) - padded_vocab(vocab, 1, tp)
    return extra / tp * setup.proposal.arch.hidden


def bucket_bytes(stack: Stack, bucket_mib: float) -> float:
    """Bytes of a gradient bucket that gradients are copied into; our trainer's lie in their buckets."""
    return 0.0 if stack.name == "meshwright" else bucket_mib * MIB


def context_bytes(setup: Setup, stack: Stack, layout: groups.Degrees) -> float:
    """Bytes outside the tensor allocator: the process's context and the channel buffers of each communicator."""
    device = setup.proposal.cluster.device
    if device.kind == "cpu":
        return device.reserved_bytes.value
    axes = sum(degree > 1 for degree in (layout.dp * layout.cp, layout.tp, layout.pp, layout.ep))
    return (stack.context_mib + axes * stack.communicator_mib) * MIB


def stage_memories(layout: Layout, memory: Memory) -> tuple[StageMemory, ...]:
    """The bytes as values, one entry a pipeline rank."""
    kinds = memory.by_kind()
    backward, step = (np.broadcast_to(total, layout.pp) for total in memory.parts.totals())
    context = np.broadcast_to(memory.parts.context, layout.pp)
    by_unit = memory.by_unit()
    least, most = quantile(memory.spread, 0.05), quantile(memory.spread, 0.95)
    found = []
    for rank in range(layout.pp):
        held, outside = float(memory.allocated[rank]), float(context[rank])
        over = (memory.needs[rank] - outside) / held if held else 1.0
        found.append(
            StageMemory(
                rank, layout.stages_of(rank), {kind: round(float(sizes[rank])) for kind, sizes in kinds.items()},
                round(float(memory.held_counts[rank].sum())),
                {kind: round(float(size)) for kind, size in zip(KINDS, by_unit[rank], strict=True) if size},
                {"backward": round(float(backward[rank] * over + outside)),
                 "optimizer step": round(float(step[rank] * over + outside))},
                round(float(memory.limits[rank])), p_oom(memory.spread, held, float(memory.limits[rank]) - outside),
                (round(held * least + outside), round(held * most + outside)),
            )
        )  # fmt: skip
    return tuple(found)


def rank_memory(setup: Setup, layout: Layout, batch: Batch) -> tuple[StageMemory, ...]:
    """Bytes of one rank of each pipeline rank by kind, see `StageMemory`."""
    stages = stage_table(layout_table(setup, layout, batch), layout.stages, layout.placement)
    return stage_memories(layout, memory_of(setup, layout, batch, stages))


def fits(ranks: Sequence[StageMemory]) -> bool:
    """No rank is more likely to run out of memory than not."""
    return all(rank.p_oom is None or rank.p_oom < DOES_NOT_FIT for rank in ranks)
