"""The event simulator: when each action of a pipeline step starts and ends, and so how long devices idle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.layout.pipeline_action import ActionKind, PipelineAction
from meshwright.timeline.columns import Action, Kind, Timeline, build

Orders = Sequence[Sequence[PipelineAction]]
Costs = Mapping[ActionKind, Sequence[float]]

_ACTION = {"F": Action.FORWARD, "B": Action.BACKWARD, "I": Action.INPUT_BACKWARD, "W": Action.WEIGHT_BACKWARD}
_NAMES = ("forward", "backward", "input backward", "weight backward", "gradient exchange", "optimizer", "transfer")


class Hop(NamedTuple):
    """One transfer between pipeline ranks, for the action of `stage` that waits for it."""

    sender: int
    receiver: int
    stage: int
    micro_batch: int
    forward: bool
    start: float
    end: float


@dataclass(frozen=True)
class Simulation:
    """One simulated step. All figures are seconds; lists are by pipeline rank, `start` and `end` by rank and action.

    `busy_s` is the time in pipeline actions; `idle_fraction` is what remains of the makespan beside actions, gradient
    exchange and optimizer.
    """

    makespan_s: float
    busy_s: tuple[float, ...]
    idle_fraction: tuple[float, ...]
    start: tuple[NDArray[np.float64], ...]
    end: tuple[NDArray[np.float64], ...]
    orders: tuple[Sequence[PipelineAction], ...]
    exchange_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    hops: tuple[Hop, ...]

    @property
    def bubble_fraction(self) -> float:
        """Mean idle share over the pipeline ranks."""
        return sum(self.idle_fraction) / len(self.idle_fraction)

    def timeline(self, step: int = 0) -> Timeline:
        """The step as a predicted Timeline; its ranks are pipeline ranks, transfers lie on the receiver's stream 1."""
        rows: list[tuple[int, int, float, float, int, int, int, int, int]] = []
        for rank, order in enumerate(self.orders):
            for (stage, kind, i), start, end in zip(order, self.start[rank], self.end[rank], strict=True):
                action = _ACTION[kind]
                rows.append((rank, 0, start, end, Kind.COMPUTE, action, action - 1, stage, i))
            at = float(self.end[rank][-1])
            exchanged = at + self.exchange_s[rank]
            if self.exchange_s[rank] > 0:
                rows.append((rank, 1, at, exchanged, Kind.COMMUNICATION, Action.NONE, 4, -1, -1))
            if self.optimizer_s[rank] > 0:
                done = exchanged + self.optimizer_s[rank]
                rows.append((rank, 0, exchanged, done, Kind.COMPUTE, Action.OPTIMIZER, 5, -1, -1))
        for hop in self.hops:
            action = Action.FORWARD if hop.forward else Action.BACKWARD
            rows.append(
                (hop.receiver, 1, hop.start, hop.end, Kind.COMMUNICATION, action, 6, hop.stage, hop.micro_batch)
            )
        table = np.array(rows, np.float64).reshape(-1, 9)
        whole = table.astype(np.int64)
        columns = {
            "rank": whole[:, 0], "stream": whole[:, 1], "start": np.rint(table[:, 2] * 1e9),
            "end": np.rint(table[:, 3] * 1e9), "kind": whole[:, 4], "action": whole[:, 5], "name": whole[:, 6],
            "stage": whole[:, 7], "micro_batch": whole[:, 8], "step": np.full(len(whole), step),
        }  # fmt: skip
        return build(dict(columns), names=_NAMES, mode="predicted", recorded=range(len(self.orders)))


def simulate(
    orders: Orders,
    placement: Sequence[int],
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    input_backward_s: Sequence[float] | None = None,
    weight_backward_s: Sequence[float] | None = None,
    hop_s: float | Sequence[float] = 0.0,
    exchange_s: float | Sequence[float] = 0.0,
    optimizer_s: float | Sequence[float] = 0.0,
) -> Simulation:
    """Run one step of a pipeline, action by action.

    `orders[r]` is what pipeline rank r does, `placement[s]` the rank of stage s; costs are seconds by stage. A rank
    does one action at a time, in its order, as soon as its input has arrived: a forward needs the stage before, a
    backward the stage after, `hop_s` later when that is another rank (one figure, or one for each boundary s, s + 1).
    Transfers occupy no rank. A halved backward costs half of `backward_s` each where not given. At the end each rank
    spends `exchange_s` (exposed gradient exchange) and `optimizer_s`, one figure or one a rank.
    Raises ValueError when the orders deadlock. O(actions).
    """
    stages, ranks = len(placement), len(orders)
    half = [cost / 2 for cost in backward_s]
    cost: Costs = {"F": forward_s, "B": backward_s, "I": input_backward_s or half, "W": weight_backward_s or half}
    per_boundary = [hop_s] * (stages - 1) if isinstance(hop_s, int | float) else list(hop_s)
    hop = [h if placement[s] != placement[s + 1] else 0.0 for s, h in enumerate(per_boundary)] + [0.0]
    starts, _ = _run(orders, placement, cost, hop)

    ends, busy = [], []
    for order, start in zip(orders, starts, strict=True):
        spent = np.array([cost[kind][stage] for stage, kind, _ in order])
        ends.append(start + spent)
        busy.append(float(spent.sum()))
    exchange, optimizer = _by_rank(exchange_s, ranks), _by_rank(optimizer_s, ranks)
    tails = [e + o for e, o in zip(exchange, optimizer, strict=True)]
    makespan = max(float(end[-1]) + tail for end, tail in zip(ends, tails, strict=True))
    whole = makespan or 1.0
    idle = tuple(max(0.0, 1 - (b + tail) / whole) for b, tail in zip(busy, tails, strict=True))
    return Simulation(
        makespan, tuple(busy), idle, starts, tuple(ends), tuple(orders), exchange, optimizer,
        _transfers(orders, placement, ends, hop),
    )  # fmt: skip


def rank_ends(orders: Orders, placement: Sequence[int], cost: Costs, hop_s: float) -> list[float]:
    """When each pipeline rank of `simulate` ends its last action, for costs of every kind of action by stage."""
    hop = [hop_s if here != after else 0.0 for here, after in pairwise(placement)] + [0.0]
    return _run(orders, placement, cost, hop)[1]


def _by_rank(value: float | Sequence[float], ranks: int) -> tuple[float, ...]:
    return (float(value),) * ranks if isinstance(value, int | float) else tuple(value)


def _run(
    orders: Orders,
    placement: Sequence[int],
    cost: Costs,
    hop: list[float],
) -> tuple[tuple[NDArray[np.float64], ...], list[float]]:
    """Start times of all actions, and when each rank ends. The inner loop of the planner: plain lists, one look-up and
    one store an action."""
    stages, last = len(placement), len(placement) - 1
    m = 1 + max((action.micro_batch for order in orders for action in order), default=0)
    absent = -1.0
    forward_in = [[absent] * m for _ in range(stages + 1)]  # when the input of F(stage, i) is there
    backward_in = [[absent] * m for _ in range(stages)]  # and that of B or I
    weight_in = [[absent] * m for _ in range(stages)]
    forward_in[0] = [0.0] * m
    f_cost, b_cost, i_cost, w_cost = cost["F"], cost["B"], cost["I"], cost["W"]
    at, clock = [0] * len(orders), [0.0] * len(orders)
    awaits: list[list[float] | None] = [None] * len(orders)  # the row in which a blocked rank's input will appear
    starts: list[list[float]] = [[] for _ in orders]
    todo = list(range(len(orders)))
    while todo:
        rank = todo.pop()
        awaits[rank] = None
        order, now, note = orders[rank], clock[rank], starts[rank].append
        for k in range(at[rank], len(order)):
            stage, kind, i = order[k]
            if kind == "F":
                row = forward_in[stage]
            elif kind == "W":
                row = weight_in[stage]
            else:
                row = backward_in[stage]
            ready = row[i]
            if ready < 0.0:
                awaits[rank], at[rank] = row, k
                break
            if ready > now:
                now = ready
            note(now)
            if kind == "F":
                now += f_cost[stage]
                if stage == last:
                    backward_in[stage][i] = now
                    continue
                row, other = forward_in[stage + 1], placement[stage + 1]
                row[i] = now + hop[stage]
            elif kind == "W":
                now += w_cost[stage]
                continue
            else:
                if kind == "I":
                    now += i_cost[stage]
                    weight_in[stage][i] = now
                else:
                    now += b_cost[stage]
                if stage == 0:
                    continue
                row, other = backward_in[stage - 1], placement[stage - 1]
                row[i] = now + hop[stage - 1]
            if awaits[other] is row:
                awaits[other] = None
                todo.append(other)
        else:
            at[rank] = len(order)
        clock[rank] = now
    stuck = [rank for rank, order in enumerate(orders) if at[rank] < len(order)]
    if stuck:
        waits = ", ".join(f"rank {rank} waits to run {orders[rank][at[rank]]}" for rank in stuck)
        raise ValueError(f"these orders deadlock: {waits}")
    return tuple(np.array(row) for row in starts), clock


def _transfers(
    orders: Orders,
    placement: Sequence[int],
    ends: Sequence[NDArray[np.float64]],
    hop: list[float],
) -> tuple[Hop, ...]:
    if not any(hop):
        return ()
    out = []
    for rank, order in enumerate(orders):
        for (stage, kind, i), end in zip(order, ends[rank].tolist(), strict=True):
            to = stage + 1 if kind == "F" else stage - 1
            if kind == "W" or not 0 <= to < len(placement) or placement[to] == rank:
                continue
            out.append(Hop(rank, placement[to], to, i, to > stage, end, end + hop[min(stage, to)]))
    return tuple(out)
