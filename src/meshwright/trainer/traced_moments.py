"""Which micro-batches to trace together, so that a short step has the peaks of the whole one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.layout.pipeline_action import ActionKind, Order, PipelineAction

LONGEST = 16  # micro-batches traced together; what more of them keep is added, being the same again


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action does to the bytes alive: `delta` stays when it is over, `rise` is its most on the way."""

    delta: int
    rise: int


Effects = Mapping[tuple[int, ActionKind], Effect]
"""By stage and kind of action, of one micro-batch."""


@dataclass(frozen=True, slots=True)
class Fullest:
    """The micro-batches alive, on any stage of a rank, when its bytes peak after a forward and inside a backward."""

    micro_batches: tuple[int, ...]  # to be traced, ascending; at most LONGEST
    in_flight: int  # counted on each stage, after the fullest forward
    left_out: tuple[int, ...]  # a stage for every forward that is alive then and not traced


def fullest(order: Order, effects: Effects) -> Fullest:
    """Walk one rank's order of actions and find its fullest moments. The order has at least one forward."""
    now = most_forward = most_backward = 0
    alive: dict[tuple[int, int], None] = {}
    forward: tuple[tuple[int, int], ...] = ()
    backward: tuple[tuple[int, int], ...] = ()
    for stage, kind, micro_batch in order:
        effect = effects[stage, kind]
        if kind == "F":
            alive[stage, micro_batch] = None
            if now + effect.delta > most_forward or not forward:
                most_forward, forward = now + effect.delta, tuple(alive)
        else:
            if now + effect.rise > most_backward or not backward:
                most_backward, backward = now + effect.rise, tuple(alive)
            if kind != "I":
                del alive[stage, micro_batch]
        now += effect.delta
    wanted = sorted({micro_batch for _, micro_batch in (*forward, *backward)})
    chosen = frozenset(wanted[:LONGEST])
    left_out = tuple(stage for stage, micro_batch in forward if micro_batch not in chosen)
    return Fullest(tuple(sorted(chosen)), len(forward), left_out)


def restricted(orders: Sequence[Order], micro_batches: Sequence[int]) -> tuple[Order, ...]:
    """The orders of actions of these micro-batches alone, numbered anew from 0."""
    number = {micro_batch: index for index, micro_batch in enumerate(micro_batches)}
    return tuple(
        tuple(
            PipelineAction(action.stage, action.kind, number[action.micro_batch])
            for action in order
            if action.micro_batch in number
        )
        for order in orders
    )
