"""What one step costs each stage and each rank, before the pipeline is simulated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.model.lora import trainable_share
from meshwright.model.states import gradient_bytes, state_bytes
from meshwright.predictor import constants, groups
from meshwright.predictor.collectives import allreduce_s
from meshwright.predictor.compute import share_of
from meshwright.predictor.exchanges import (
    Parameters,
    hop_s,
    replica_groups,
    step_exchange,
)
from meshwright.predictor.recipe import recipe_of
from meshwright.predictor.stacks import stack_of
from meshwright.predictor.table import Figure, StageTable, by_rank

Floats = NDArray[np.float64]


class ActionSeconds(NamedTuple):
    """Seconds of one action by stage."""

    forward: Floats
    backward: Floats
    input_backward: Floats
    weight_backward: Floats


@dataclass(frozen=True)
class StepCosts:
    """Device seconds, communication inside the stages included.

    By stage and micro-batch: `forward_s`, `backward_s` and its halves. By pipeline rank and step: `exposed_s`
    (gradient exchange that the last backward does not hide), `exchange_s` (all of it), `optimizer_s`; `after_s`, the
    gathering of new parameters, and `tied_s` are waited for by all. `stage_dp_s` by stage and micro-batch: what ZeRO-2
    and ZeRO-3 add to the stage's own time.
    """

    forward_s: Floats
    backward_s: Floats
    input_backward_s: Floats
    weight_backward_s: Floats
    stage_dp_s: Floats
    hop_s: float
    exposed_s: Floats
    exchange_s: Floats
    optimizer_s: Floats
    after_s: float
    tied_s: float

    @property
    def actions(self) -> ActionSeconds:
        """Those of the pipeline's actions."""
        return ActionSeconds(self.forward_s, self.backward_s, self.input_backward_s, self.weight_backward_s)


def optimizer_bytes(setup: Setup) -> float:
    """Bytes read and written for each parameter that a rank updates: gradient, master copy, moments, weight."""
    recipe, training = recipe_of(setup), setup.proposal.training
    copies = 2 * recipe.master + recipe.weight if recipe.master else 2 * recipe.weight
    clipping = 3 * recipe.gradient if training.clip > 0 else 0
    return recipe.gradient + 2 * recipe.moments + copies + clipping


def optimizer_s(
    setup: Setup, degrees: groups.Degrees, zero: int, dense: Floats, expert: Floats, measured: MeasuredUnits | None
) -> Floats:
    """The optimizer step of each pipeline rank: the measured seconds of a parameter (of this layout's mean rank where
    the run did not record how many it updated), or at memory speed."""
    proposal = setup.proposal
    device, training = proposal.cluster.device, proposal.training
    updated = whole = dense + expert
    if zero:
        shards = groups.shard_group(proposal.cluster, degrees).size
        updated = dense / shards + expert / min(shards, groups.expert_gradient_group(proposal.cluster, degrees).size)
    if measured is not None and measured.optimizer_s > 0:
        return updated * (measured.optimizer_s / (measured.optimizer_parameters or float(whole.mean())))
    rate = device.memory_bandwidth.value * constants.MEMORY_EFFICIENCY.value
    moved = updated * trainable_share(proposal.arch, training) * optimizer_bytes(setup)
    host = stack_of(setup).step_ms * 1e-3 if device.kind == "gpu" else 0.0
    return moved / rate + 20 * device.launch_s.value + host


def _beside(busy: Floats, exchange: Floats, units: NDArray[np.int64], overlap: bool) -> Floats:
    """Seconds that an exchange adds to work it runs beside: what is longer than the work, one unit's worth at the
    start or end that nothing can hide, and what the work loses to the rest."""
    if not overlap:
        return exchange
    open_part = np.maximum(exchange - busy, 0.0) + exchange / np.maximum(units, 1)
    return open_part + constants.CONTENTION.value * np.maximum(exchange - open_part, 0.0)


def copies_s(setup: Setup, zero: int, parameters: Floats) -> tuple[Floats, Floats]:
    """Seconds a micro-batch that sharding spends on copies, in forward and backward: gathered pieces are sorted into
    whole parameters, gradients of a unit are packed before they are reduced."""
    training, device = setup.proposal.training, setup.proposal.cluster.device
    rate = device.memory_bandwidth.value * constants.MEMORY_EFFICIENCY.value
    recipe = state_bytes(training)
    weight, gradient = recipe.weight, recipe.gradient * trainable_share(setup.proposal.arch, training)
    gather = 2 * weight * parameters / rate if zero == 3 else np.zeros_like(parameters)
    pack = (weight + gradient) * parameters / rate if zero >= 2 else np.zeros_like(parameters)
    return gather, gather + pack


def have_replicas(degrees: groups.Degrees, experts: bool) -> bool:
    """Do several ranks hold the same parameters?"""
    return degrees.dp * degrees.cp > 1 or (experts and degrees.ep * degrees.etp < degrees.tp)


def step_costs(
    setup: Setup, layout: Layout, batch: Batch, stages: StageTable, measured: MeasuredUnits | None = None
) -> StepCosts:
    """Costs of a layout from its stages' sums."""
    proposal = setup.proposal
    cluster, training = proposal.cluster, proposal.training
    forward = stages[Figure.FORWARD] + stages[Figure.TP_FORWARD] + stages[Figure.CP_FORWARD] + stages[Figure.EP_FORWARD]
    inner = stages[Figure.TP_BACKWARD] + stages[Figure.CP_BACKWARD] + stages[Figure.EP_BACKWARD]
    backward, halves = stages[Figure.BACKWARD] + inner, stages[Figure.INPUT_BACKWARD] + inner

    replicas = have_replicas(layout, bool(stages[Figure.EXPERT].any()))
    none = np.zeros(len(layout.placement))
    end, after, beside_f, beside_b, rounds = none, none, none, none, np.ones(len(layout.placement))
    if replicas:
        among = replica_groups(cluster, layout)
        held = list(zip(stages[Figure.DENSE].tolist(), stages[Figure.EXPERT].tolist(), stages.units, strict=True))
        each = {
            one: step_exchange(
                proposal.arch,
                training,
                cluster,
                layout.zero,
                layout.bucket_mib,
                among,
                Parameters(*one[:2]),
                one[2],
                stack=stack_of(setup),
            )
            for one in set(held)
        }
        parts = [each[one] for one in held]
        table = np.array([(part.end_s, part.after_s, part.forward_s, part.backward_s, part.rounds) for part in parts])
        end, after, beside_f, beside_b, rounds = table.T
    extra_f = _beside(forward, beside_f, stages.units, layout.overlap)
    extra_b = _beside(backward, beside_b, stages.units, layout.overlap)
    if replicas and layout.zero >= 2:
        copies_f, copies_b = copies_s(setup, layout.zero, stages[Figure.DENSE] + stages[Figure.EXPERT])
        extra_f, extra_b = extra_f + copies_f, extra_b + copies_b

    def ranks(values: Floats) -> Floats:
        return by_rank(values, layout.placement, layout.pp)

    exchange = ranks(end)
    exposed = exchange
    if layout.overlap and exchange.any():
        last = ranks(end / rounds)  # the last bucket is ready only when the backward is over
        hidden = ranks(np.minimum(end - end / rounds, (backward + extra_b) * (1 - 1 / rounds)))
        exposed = np.maximum(last, exchange - hidden)
        exposed = exposed + constants.CONTENTION.value * (exchange - exposed)
    dense, expert = ranks(stages[Figure.DENSE]), ranks(stages[Figure.EXPERT])
    return StepCosts(
        forward + extra_f, backward + extra_b, halves + extra_b, stages[Figure.WEIGHT_BACKWARD], extra_f + extra_b,
        hop_s(proposal.arch, training, cluster, share_of(layout, batch), layout) if layout.pp > 1 else 0.0,
        exposed, exchange, optimizer_s(setup, layout, layout.zero, dense, expert, measured), float(ranks(after).max()),
        _tied_s(setup, layout, stages),
    )  # fmt: skip


def _tied_s(setup: Setup, layout: Layout, stages: StageTable) -> float:
    """First and last stage sum the gradients of their two copies of a tied matrix."""
    arch, cluster = setup.proposal.arch, setup.proposal.cluster
    if not arch.tied or layout.placement[stages.head_stage] == layout.placement[stages.embed_stage]:
        return 0.0
    size = arch.vocab * arch.hidden / layout.tp * gradient_bytes(setup.proposal.training)
    return allreduce_s(cluster, size, 2, groups.hop_nodes(cluster, layout))


def pipeline_bound(placement: Sequence[int], seconds: ActionSeconds, hop: float, m: int, split: bool) -> Floats:
    """A lower bound of the moment each pipeline rank ends its last action; exact without a pipeline.

    A rank cannot start before a micro-batch has come through the stages before its first one, and works through all
    its actions; its last whole backward then has to come down through all earlier stages to those ranks. With halved
    backwards the last action may be a weight gradient, for which nobody waits.
    """
    work = seconds.forward + (seconds.input_backward + seconds.weight_backward if split else seconds.backward)
    ranks = np.asarray(placement)
    busy = np.bincount(ranks, work) * m
    depth: dict[int, int] = {}
    for stage, rank in enumerate(placement):
        depth.setdefault(rank, stage)
    first, by_depth = np.array([depth[rank] for rank in range(len(depth))]), np.array(list(depth))
    crossings = np.zeros(len(ranks))
    crossings[1:] = np.where(ranks[1:] != ranks[:-1], hop, 0.0)
    hops = crossings.cumsum()
    ends: Floats = busy + _arrivals(seconds.forward, hops)[first]
    if split:
        return ends
    tail = _arrivals(seconds.backward, hops)[first]
    # Deepest first: whatever ends there has to come down to here.
    deepest = by_depth[::-1]
    ends[deepest] = np.maximum.accumulate((ends + tail)[deepest]) - tail[deepest]
    return ends


def _arrivals(seconds: Floats, hops: Floats) -> Floats:
    """Seconds of all earlier stages and the hops between them, by stage."""
    before = hops.copy()
    before[1:] += seconds.cumsum()[:-1]
    return before
