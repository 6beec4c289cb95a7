"""The trainer's own step, run without memory or peers: exact bytes and messages of a rank of any world.

One rank's engine is built under a process group whose other ranks do not exist, on tensors that have shapes only
(fake tensors), and takes real steps: our models, schedule, exchanges and optimizer, every operator dispatched, nothing
computed. First a step of one micro-batch, which warms the optimizer up and tells what each action keeps; then one of
the micro-batches that the schedule holds together at the fullest moment, in the schedule's own order.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from meshwright.basics.errors import InputError
from meshwright.files.plan import Plan
from meshwright.files.traced import TracedMessages, TracedRank
from meshwright.layout.pipeline_action import ActionKind
from meshwright.layout.schedules import SPLIT_BACKWARD, actions
from meshwright.timeline.columns import Action
from meshwright.trainer.engine import Engine
from meshwright.trainer.memory import held_tensors, rank_memory
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.groups import Group
from meshwright.trainer.parallel.mesh import Mesh, build_mesh
from meshwright.trainer.parallel.pipeline import MicroBatchLoop, ScheduledPipe
from meshwright.trainer.parallel.replicated import Replicated
from meshwright.trainer.parallel.sharded import Sharded
from meshwright.trainer.spans import SpanRecorder
from meshwright.trainer.traced_moments import LONGEST, Effect, Effects, Fullest, fullest, restricted
from meshwright.trainer.traced_tensors import Messages, Moment, TracedTensors, WatchingClock
from meshwright.trainer.traced_world import fake_world, without_memory
from meshwright.trainer.unsupported import unsupported

_TOKEN = 8  # bytes: int64
_CPU = torch.device("cpu")
_LETTERS: dict[Action, ActionKind] = {
    Action.FORWARD: "F", Action.BACKWARD: "B", Action.INPUT_BACKWARD: "I", Action.WEIGHT_BACKWARD: "W",
}  # fmt: skip


def traced(plan: Plan, pipeline_rank: int) -> TracedRank:
    """Trace a step of the first rank of a pipeline rank: bytes and messages of a whole step ("traced, CPU kernels").

    In a process without a default process group, which has none afterwards either. Raises InputError for a plan that
    the trainer cannot run.
    """
    if refused := unsupported(plan):
        raise InputError(refused)
    start = time.perf_counter()
    layout = plan.layout
    with fake_world(layout.world, pipeline_rank * (layout.world // layout.pp)):
        mesh = build_mesh(layout, _CPU.type)
        with without_memory():
            return _Trace(plan, mesh).rank(start)


class _Trace:
    """One rank's engine under observation."""

    def __init__(self, plan: Plan, mesh: Mesh) -> None:
        self.plan, self.mesh = plan, mesh
        self.clock = WatchingClock(SpanRecorder(mesh.rank))
        single = replace(plan.batch, micro_batches=1, global_batch=plan.batch.micro_batch * mesh.dp.size)
        self.engine = Engine(replace(plan, batch=single), _CPU, mesh, self.clock)
        self.steps = self.before = 0

    def rank(self, start: float) -> TracedRank:
        """All figures."""
        engine, layout, m = self.engine, self.plan.layout, self.plan.batch.micro_batches
        first = self.step((0,))
        found, tensors = self._fullest(m), first
        more: tuple[int, ...] = (0,)
        # The first micro-batch of a step also pays for what is made once, the others tell what each of them costs.
        for _ in range(2):
            wanted = found.micro_batches if len(found.micro_batches) > 1 or m == 1 else _with_another(found, m)
            if wanted == more and tensors is not first:
                break
            more, tensors = wanted, self.step(wanted)
            found = self._fullest(m)
        held = rank_memory(self.mesh.rank, engine.parts.parameters, engine.optimizer, None, engine.parts.owned)
        moments = self.clock.moments
        top = max((moment for moment in moments if moment.action == Action.FORWARD), key=lambda moment: moment.after)
        kept = _effects(moments)
        # Micro-batches left out keep what the others keep. All samples lie there from the start (which the tracker
        # does not see, they being made of one number here), and while micro-batches run also their tokens alone.
        left_out = sum(kept[stage, "F"].delta for stage in found.left_out)
        samples = m * self.plan.batch.micro_batch * (self.plan.batch.seq_len + 1) * _TOKEN
        tokens = self.plan.batch.micro_batch * self.plan.batch.seq_len * _TOKEN
        added = left_out + samples + (m - len(more)) * tokens
        states = held.weights + held.gradients + held.optimizer
        return TracedRank(
            pipeline_rank=self.mesh.pp.rank, stages=layout.stages_of(self.mesh.pp.rank),
            tensors=len(engine.parts.parameters), parameters=held.weights, gradients=held.gradients,
            optimizer=held.optimizer, after_forward=top.after + added,
            activations=top.after - top.wide - states + left_out - len(more) * tokens,
            logits=tensors.wide_peak, in_flight=found.in_flight,
            backward_peak=added + max(moment.peak for moment in moments if moment.action in _LETTERS),
            optimizer_peak=samples + max(moment.peak for moment in moments if moment.action == Action.OPTIMIZER),
            messages=_whole_step(first.messages, tensors.messages, len(more), m),
            seconds=time.perf_counter() - start,
        )  # fmt: skip

    def step(self, micro_batches: Sequence[int]) -> TracedTensors:
        """A step of these micro-batches of the schedule, watched."""
        engine, batch, count = self.engine, self.plan.batch, len(micro_batches)
        pipe, replicas = engine.parts.pipe, engine.parts.replicas
        if self.before and isinstance(replicas, Replicated | Sharded):
            replicas.buckets.expect(count, self.before)
        if isinstance(pipe, MicroBatchLoop):
            pipe.micro_batches = count
        elif isinstance(pipe, ScheduledPipe):
            layout = self.plan.layout
            orders = actions(layout.schedule, layout.placement, self.plan.batch.micro_batches)
            pipe.follow(restricted(orders, micro_batches), count)
        # Values are never read, so that all samples can be one number.
        rows = count * batch.micro_batch * self.mesh.dp.size
        samples = np.broadcast_to(np.zeros(1, np.int64), (rows, batch.seq_len + 1))
        self.clock.moments.clear()
        held = held_tensors(engine.parts.parameters, engine.optimizer, engine.parts.owned)
        width = _vocabulary_width(engine.parts.models, batch.seq_len)
        tensors = TracedTensors(held, width, process_groups(self.mesh))
        with tensors, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            self.clock.tensors = tensors
            engine.step(self.steps, samples)
            self.clock.tensors = None
        self.steps, self.before = self.steps + 1, count
        return tensors

    def _fullest(self, m: int) -> Fullest:
        layout = self.plan.layout
        if layout.pp == 1:
            return Fullest((0,), 1, ())
        order = actions(layout.schedule, layout.placement, m)[self.mesh.pp.rank]
        found = fullest(order, _effects(self.clock.moments))
        if layout.zero == 3 and layout.schedule in SPLIT_BACKWARD:  # whole gradients build up as weight halves run
            found = replace(found, micro_batches=tuple(range(min(m, LONGEST))))
        return found


def _with_another(found: Fullest, m: int) -> tuple[int, ...]:
    """Two micro-batches that follow each other, so that what repeats can be told from what happens once a step."""
    only = found.micro_batches[0]
    return (only, only + 1) if only + 1 < m else (only - 1, only)


def _effects(moments: Sequence[Moment]) -> Effects:
    """Of the last micro-batch of each stage: nothing is made for the first time any more."""
    return {
        (moment.stage, _LETTERS[moment.action]): Effect(moment.after - moment.before, moment.peak - moment.before)
        for moment in moments
        if moment.action in _LETTERS
    }


def process_groups(mesh: Mesh) -> dict[str, str]:
    """What the ranks of each process group share, by the group's name in PyTorch."""
    found: dict[str, str] = {}
    for name in ("dp", "tp", "pp", "shard", "copies", "ends", "world"):  # one group can be several things
        group: Group = getattr(mesh, name)
        if group.handle is not None:
            found.setdefault(group.handle.group_name, name)
    return found


def _vocabulary_width(models: Sequence[tuple[int, StageModel]], seq_len: int) -> int | None:
    """This rank's share of the vocabulary; None without the head, or where other tensors are as wide."""
    for _, model in models:
        if model.has_head:
            width = int(model.lm_head.weight.shape[0])
            others = {seq_len, *(size for p in model.model.parameters() for size in p.shape[-1:])}
            return None if width in others else width
    return None


def _whole_step(one: Messages, several: Messages, count: int, m: int) -> tuple[TracedMessages, ...]:
    """Messages of a step of `m` micro-batches, from those of a step of one and a step of `count`."""

    def total(one: int, several: int) -> int:
        """Each further micro-batch adds the same again; what happens once a step is in both."""
        return several + (m - count) * ((several - one) // max(1, count - 1))

    return tuple(
        TracedMessages(*key, total(one.count[key], several.count[key]), total(one.size[key], several.size[key]))
        for key in sorted(several.count)
    )
