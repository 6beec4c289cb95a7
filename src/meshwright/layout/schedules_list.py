"""List scheduling: an order for any map of stages to ranks.

Where no published schedule fits the placement, each rank takes, whenever it is free, the most urgent action that is
ready. The order that results is a valid run of the pipeline, so executing it with blocking receives cannot deadlock.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from meshwright.layout.pipeline_action import ActionKind, Order, PipelineAction

_TICKS: dict[ActionKind, int] = {"F": 1, "B": 2, "I": 1, "W": 1}


def live_limits(placement: Sequence[int]) -> tuple[int, ...]:
    """How many micro-batches may be alive on each stage: one more than the transfers ahead of it, at most 2 · ranks.

    With one stage a rank this is 1F1B's p - s; where a micro-batch comes back to ranks it has visited, the cap keeps
    about as much as an interleaved schedule. A limit of one or more on each stage can never block the oldest
    unfinished micro-batch, so the limits cannot deadlock.
    """
    cap = 2 * (max(placement) + 1)
    limits = [1]
    for here, after in pairwise(reversed(placement)):
        limits.append(min(limits[-1] + (here != after), cap))
    return tuple(reversed(limits))


@dataclass
class _Rank:
    """The ready actions of one rank, and what it has done."""

    forwards: list[tuple[int, int]] = field(default_factory=list)  # (micro-batch, -stage): oldest, then deepest
    backwards: list[tuple[int, int]] = field(default_factory=list)
    weights: list[tuple[int, int]] = field(default_factory=list)
    forwards_left: int = 0
    busy: bool = False
    order: list[PipelineAction] = field(default_factory=list)


def list_schedule(
    placement: Sequence[int], micro_batches: int, *, split: bool = False, forwards_first: bool = False
) -> tuple[Order, ...]:
    """One order a rank for stages placed anywhere; `placement[s]` is the rank of stage s, ranks are 0..max.

    A free rank prefers a backward (oldest micro-batch first), then a forward within `live_limits`, then, when `split`
    halves the backward, a weight gradient. `forwards_first` is GPipe's discipline instead: no backward before the
    rank's last forward, no limit. Backwards are taken to last twice as long as forwards.
    """
    last = len(placement) - 1
    limits = live_limits(placement)
    live = [0] * len(placement)
    ranks = [_Rank() for _ in range(max(placement) + 1)]
    for holder in placement:
        ranks[holder].forwards_left += micro_batches
    back: ActionKind = "I" if split else "B"
    ends: list[tuple[int, int, PipelineAction]] = []

    def next_action(rank: _Rank) -> PipelineAction | None:
        if rank.backwards and not (forwards_first and rank.forwards_left):
            i, stage = heapq.heappop(rank.backwards)
            return PipelineAction(-stage, back, i)
        allowed = [entry for entry in rank.forwards if forwards_first or live[-entry[1]] < limits[-entry[1]]]
        if allowed:
            entry = min(allowed)
            rank.forwards.remove(entry)
            return PipelineAction(-entry[1], "F", entry[0])
        if rank.weights:
            i, stage = heapq.heappop(rank.weights)
            return PipelineAction(-stage, "W", i)
        return None

    def finish(stage: int, kind: ActionKind, i: int) -> None:
        if kind == "F":
            if stage < last:
                ranks[placement[stage + 1]].forwards.append((i, -stage - 1))
            else:
                heapq.heappush(ranks[placement[stage]].backwards, (i, -stage))
            return
        if kind != "W" and stage > 0:
            heapq.heappush(ranks[placement[stage - 1]].backwards, (i, -stage + 1))
        if kind == "I":
            heapq.heappush(ranks[placement[stage]].weights, (i, -stage))
        else:
            live[stage] -= 1

    ranks[placement[0]].forwards.append((0, 0))
    now = 0
    while True:
        for number, rank in enumerate(ranks):
            if rank.busy or (action := next_action(rank)) is None:
                continue
            rank.busy = True
            rank.order.append(action)
            heapq.heappush(ends, (now + _TICKS[action.kind], number, action))
            if action.kind == "F":
                live[action.stage] += 1
                rank.forwards_left -= 1
                if action.stage == 0 and action.micro_batch + 1 < micro_batches:
                    rank.forwards.append((action.micro_batch + 1, 0))
        if not ends:
            return tuple(tuple(rank.order) for rank in ranks)
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, number, action = heapq.heappop(ends)
            ranks[number].busy = False
            finish(*action)
