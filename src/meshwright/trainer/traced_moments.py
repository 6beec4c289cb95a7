"""Which micro-batches to trace together, so that a short step has the peaks of the whole one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.layout.pipeline_action import ActionKind, Order, PipelineAction

_ALIKE = 0.02  # moments that differ by less are one as good as the other
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
    """Walk one rank's order of actions and find its fullest moments. The order has at least one forward.

    Of moments alike, the first that has a finished micro-batch behind it, which is traced as well: what it leaves
    under way (its gradients' exchange, its messages) is then in memory too.
    """
    now, done, stages = 0, -1, len({action.stage for action in order})
    finished: dict[int, int] = {}  # on how many of the rank's stages, by micro-batch
    alive: dict[tuple[int, int], None] = {}
    forward, backward = _Top(), _Top()
    for stage, kind, micro_batch in order:
        effect = effects[stage, kind]
        if kind == "F":
            alive[stage, micro_batch] = None
            forward = forward.or_else(_Top(now + effect.delta, done, tuple(alive)))
        else:
            backward = backward.or_else(_Top(now + effect.rise, done, tuple(alive)))
            if kind != "I":
                del alive[stage, micro_batch]
                finished[micro_batch] = finished.get(micro_batch, 0) + 1
                done = micro_batch if finished[micro_batch] == stages else done
        now += effect.delta
    wanted = {micro_batch for _, micro_batch in (*forward.alive, *backward.alive)}
    wanted |= {top.done for top in (forward, backward) if top.done >= 0}
    chosen = frozenset(sorted(wanted)[:LONGEST])
    left_out = tuple(stage for stage, micro_batch in forward.alive if micro_batch not in chosen)
    return Fullest(tuple(sorted(chosen)), len(forward.alive), left_out)


@dataclass(frozen=True, slots=True)
class _Top:
    """The fullest moment so far: bytes, the last micro-batch done (-1: none) and those alive, with their stages."""

    size: int = -1
    done: int = -1
    alive: tuple[tuple[int, int], ...] = ()

    def or_else(self, other: "_Top") -> "_Top":
        alike = other.size >= self.size * (1 - _ALIKE) and self.done < 0 <= other.done
        return other if other.size > self.size or alike else self


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
