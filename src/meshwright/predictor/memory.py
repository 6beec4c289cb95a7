"""Every byte of each pipeline rank of one plan, by kind, and how likely it runs out of memory.

The formulas are those of `memory_rows.py`; here a layout becomes rows: what its stages hold, how many micro-batches
are alive together in the schedule's own order of actions, and how the groups of its ranks share the states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import MIB
from meshwright.cluster.mixed import memory_limits
from meshwright.files.prediction import DOES_NOT_FIT, StageMemory
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, Recompute, Schedule
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.model.activations import boundary_bytes
from meshwright.model.shapes import padded_vocab
from meshwright.predictor import groups
from meshwright.predictor.compute import Share, share_of
from meshwright.predictor.live import Live, live
from meshwright.predictor.memory_pipeline import Choices, Manners, Pipeline, StageSums, rows_of
from meshwright.predictor.memory_rows import RowParts, row_parts
from meshwright.predictor.memory_table import memory_table
from meshwright.predictor.memory_units import scores_of
from meshwright.predictor.recipe import Recipe, full_recipe
from meshwright.predictor.running_out import Spread, p_oom, quantile, spread_of
from meshwright.predictor.stacks import Stack, stack_of
from meshwright.predictor.table import KINDS, Figure, Largest, StageTable, stage_table

Floats = NDArray[np.float64]


class LossChoices(Protocol):
    """How a layout holds its vocabulary, as a complete `Layout` has it."""

    @property
    def vocab_parallel(self) -> bool: ...
    @property
    def loss_chunk(self) -> int | None: ...
    @property
    def vocab_multiple(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Habits:
    """What decides bytes beside the layout: the software's habits, its recipe, and how its memory spreads."""

    stack: Stack
    recipe: Recipe
    spread: Spread

    @property
    def as_scheduled(self) -> bool:
        """No fewer micro-batches are alive than the schedule's own actions keep."""
        return self.stack.in_flight >= 1 and self.stack.in_flight + self.stack.more_in_flight >= 1

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
        late, size = np.greater(step, backward), (1, len(self.limits))
        found = {}
        for kind in dict.fromkeys([*self.parts.backward, *self.parts.step]):
            sizes = np.where(late, self.parts.step.get(kind, 0.0), self.parts.backward.get(kind, 0.0))
            found[kind] = np.broadcast_to(sizes, size)[0]
        context = np.broadcast_to(self.parts.context, size)[0]
        return {**found, "reserve": self.needs - self.allocated - context, "context": context}


def memory_of(setup: Setup, layout: Layout, batch: Batch, stages: StageTable, habits: Habits | None = None) -> Memory:
    """The bytes of each pipeline rank of a layout, from the sums of its stages."""
    habits = habits or habits_of(setup)
    pipeline = Pipeline(layout.placement, stages.embed_stage, stages.head_stage, stages.mid_layer)
    lives = lives_of(pipeline, layout.schedule, batch.micro_batches, habits)
    shared = shared_choices(setup, share_of(layout, batch), habits, layout)
    late = layout.zero >= 2 and layout.exchange == "step"
    zero = 1 if packs(habits.stack) and late and layout.zero == 2 else layout.zero  # it then keeps what ZeRO-1 keeps
    choices = Choices(
        zero, groups.shard_group(setup.proposal.cluster, layout).size,
        groups.expert_gradient_group(setup.proposal.cluster, layout).size, layout.dp * layout.cp,
        late and zero >= 2, layout.offload != "none", layout.offload == "parameters",
        batch.micro_batches, shared.boundary, cut_keeps_input(habits.stack, layout.recompute), shared.gathers,
        shared.waiting, shared.at_loss, shared.put_off, layout.schedule in SPLIT_BACKWARD, shared.padding, shared.head,
        layout.bucket_mib * MIB, context_bytes(setup, habits.stack, layout),
    )  # fmt: skip
    rows, alive, kept = rows_of(pipeline, lives, stage_sums(stages), choices, manners_of(setup, habits))
    parts = row_parts(rows, habits.recipe)
    allocated = np.broadcast_to(parts.allocated(), (1, layout.pp))[0]
    limits = np.array(memory_limits(setup.proposal.cluster, layout.pp), np.float64)
    needs = allocated * habits.over + parts.context
    return Memory(parts, allocated, needs, limits, alive.counts, kept[0], stages, habits.spread)


def cut_keeps_input(stack: Stack, recompute: Recompute) -> bool:
    """Does a stage that begins inside a layer keep its input beside what its units keep?"""
    return recompute == "full" and not stack.recomputes_halves


def stage_sums(stages: StageTable) -> StageSums:
    """The sums of one layout."""
    figures, largest = stages.figures[None], stages.largest[None]
    return StageSums(
        figures[..., Figure.DENSE], figures[..., Figure.EXPERT], stages.ends[None], figures[..., Figure.ADAPTER],
        figures[..., Figure.ACTIVATION], largest[..., Largest.AGAIN], largest[..., Largest.WHOLE],
        largest[..., Largest.LAYER], largest[..., Largest.SHAPES], largest[..., Largest.GRADIENT],
        largest[..., Largest.TENSOR], figures[..., Figure.CAST],
    )  # fmt: skip


def manners_of(setup: Setup, habits: Habits) -> Manners:
    """What does not differ between layouts of a job."""
    proposal, stack = setup.proposal, habits.stack
    return Manners(
        proposal.arch.tied, proposal.training.task == "lora", stack.keeps_outputs, stack.gathered_units,
        stack.spread_vocabulary, stack.placeholder_bytes, stack.workspace_mib * MIB, packs(stack),
        proposal.cluster.device.kind == "cpu",
    )  # fmt: skip


def lives_of(pipeline: Pipeline, schedule: Schedule, micro_batches: int, habits: Habits) -> Live | Floats:
    """The schedule's moments, or with one stage a rank the counts themselves, [1, rank]; more or fewer where the
    software's scheduler keeps other numbers alive."""
    lives, stack = live(schedule, pipeline.placement, micro_batches), habits.stack
    if pipeline.ranks > 1 and (stack.in_flight != 1.0 or stack.more_in_flight):
        other = np.clip(lives.counts * stack.in_flight + stack.more_in_flight, 1.0, micro_batches)
        lives = Live(np.where(lives.counts > 0, other, 0.0), lives.first)
    return np.diag(lives.counts)[None] if pipeline.one_each else lives


@dataclass(frozen=True, slots=True)
class SharedChoices:
    """What layouts with the same share of a unit's work have in common, bytes and parameters as in `Choices`."""

    boundary: float
    gathers: float
    waiting: float
    at_loss: float
    put_off: float
    padding: float
    head: float


def shared_choices(setup: Setup, share: Share, habits: Habits, loss: LossChoices) -> SharedChoices:
    """Hidden states, scores and padding of one micro-batch on one tensor rank."""
    proposal, stack, tp = setup.proposal, habits.stack, share.tp
    arch, training = proposal.arch, proposal.training
    whole = float(boundary_bytes(arch, training, share.micro_batch, max(1, share.seq_len // share.cp)))
    waiting, at_loss, gradient = scores_of(arch, training, share, stack, loss.vocab_parallel, loss.loss_chunk)
    stored, padded = padded_vocab(arch.vocab, 1, tp), padded_vocab(arch.vocab, loss.vocab_multiple, tp)
    wider = padded / stored
    return SharedChoices(
        whole / (tp if share.sp else 1), whole if stack.tp_gathered and share.sp and tp > 1 else 0.0,
        waiting * wider, at_loss * wider, gradient * wider, (padded - stored) / tp * arch.hidden,
        padded / tp * arch.hidden,
    )  # fmt: skip


def packs(stack: Stack) -> bool:
    """Does it exchange gradients as our trainer does? See `messages` in `memory_rows.py`."""
    return stack.name.split("+")[0] == "meshwright"


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
    size = (1, layout.pp)
    backward, step = (np.broadcast_to(total, size)[0] for total in memory.parts.totals())
    context = np.broadcast_to(memory.parts.context, size)[0]
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
    stages = stage_table(memory_table(setup, layout, batch), layout.stages, layout.placement)
    return stage_memories(layout, memory_of(setup, layout, batch, stages))


def fits(ranks: Sequence[StageMemory]) -> bool:
    """No rank is more likely to run out of memory than not."""
    return all(rank.p_oom is None or rank.p_oom < DOES_NOT_FIT for rank in ranks)
