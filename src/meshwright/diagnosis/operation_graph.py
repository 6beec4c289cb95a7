"""The dependency graph of an operation table, replayed for all steps at once.

After "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et al., 2025): transfers and
collectives get the time from the latest start among their members to their end, so that waiting disappears; an
operation starts when its last dependency ends, so that launch delays disappear.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.traces.operations import Operation, Operations

Node = tuple[object, ...]
Times = dict[Node, NDArray[np.float64]]

_DIRECTIONS = {"forward": 1, "backward": -1}


@dataclass(frozen=True)
class Graph:
    """`order` lists nodes so that dependencies come first; `duration` holds [steps] seconds of each, without waiting.
    `communication` are the nodes of transfers and of collectives with several members."""

    order: tuple[Node, ...]
    before: Mapping[Node, tuple[Node, ...]]
    members: Mapping[Node, tuple[Operation, ...]]
    duration: Times
    communication: frozenset[Node]

    def replay(self, duration: Mapping[Node, NDArray[np.float64]]) -> NDArray[np.float64]:
        """[steps] seconds until the last node ends, with those durations."""
        end: Times = {}
        nothing = np.zeros(len(next(iter(duration.values()))))
        for node in self.order:
            begin = nothing
            for earlier in self.before[node]:
                begin = np.maximum(begin, end[earlier])
            end[node] = begin + duration[node]
        return np.asarray(np.max(list(end.values()), axis=0), np.float64)

    def kind(self, node: Node) -> str:
        """The type of operation; send and receive are one."""
        operation = self.members[node][0][2]
        return operation.removesuffix("-send").removesuffix("-recv")

    def even(self) -> Times:
        """Durations without stragglers: each the mean over ranks, stages, steps and micro-batches of its type, for
        communication the median, which outliers do not move."""
        seen: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
        for node in self.order:
            seen[self.kind(node) + (" transfer" if node in self.communication else "")].append(self.duration[node])
        usual = {kind: float((np.median if " transfer" in kind else np.mean)(values)) for kind, values in seen.items()}
        return {
            node: np.full_like(
                self.duration[node], usual[self.kind(node) + (" transfer" if node in self.communication else "")]
            )
            for node in self.order
        }

    def mixed(self, even: Times, actual: Callable[[tuple[Operation, ...]], bool]) -> Times:
        """Actual durations where the members satisfy `actual`, even ones elsewhere."""
        return {n: self.duration[n] if actual(self.members[n]) else even[n] for n in self.order}


def graph_of(table: Operations) -> Graph:
    """The graph: each rank does its operations in the order they were started in; a transfer waits for the compute
    that produces it, and is waited for by the one that consumes it; a collective waits for all its members.

    Raises InputError when the table's operations depend on each other in a circle.
    """
    members: dict[Node, list[Operation]] = defaultdict(list)
    for operation in table.start:
        members[_node(operation)].append(operation)
    duration: Times = {}
    for node, own in members.items():
        starts = np.max([table.start[op] for op in own], axis=0)
        ends = [table.start[op] + table.duration[op] for op in own]
        if len(own) == 1:
            duration[node] = table.duration[own[0]]
        else:
            duration[node] = np.maximum((np.min if _is_transfer(own[0]) else np.max)(ends, axis=0) - starts, 0.0)
    before: dict[Node, set[Node]] = {node: set() for node in members}
    chains: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    for operation in table.start:
        if not _is_transfer(operation):
            chains[operation[:2]].append(operation)
    for chain in chains.values():
        chain.sort(key=lambda op: float(np.median(table.start[op])))
        for earlier, later in pairwise(chain):
            if _node(later) != _node(earlier):
                before[_node(later)].add(_node(earlier))
    for operation in table.start:
        rank, stage, kind, number = operation
        if _is_transfer(operation):
            compute = rank, stage, f"{kind.split('-')[0]}-compute", number
            if compute in table.start:
                first, second = (compute, operation) if kind.endswith("-send") else (operation, compute)
                before[_node(second)].add(_node(first))
    together = frozenset(node for node, own in members.items() if len(own) > 1 or _is_transfer(own[0]))
    return Graph(
        _ordered(before), {node: tuple(own) for node, own in before.items()},
        {node: tuple(own) for node, own in members.items()}, duration, together,
    )  # fmt: skip


def _is_transfer(operation: Operation) -> bool:
    return operation[2].endswith(("-send", "-recv"))


def _node(operation: Operation) -> Node:
    """What an operation is part of: a transfer between two stages, a collective over replicas, over the two ends of a
    pipeline (tied embeddings) or over all ranks (the norm to clip by), or itself."""
    rank, stage, kind, number = operation
    if _is_transfer(operation):
        direction, end = kind.rsplit("-", 1)
        step = _DIRECTIONS.get(direction.split("-")[0], 1)
        return "transfer", direction, rank, stage if end == "send" else stage - step, number
    if kind.startswith("embedding"):
        return kind, rank, number
    if "clip" in kind:
        return kind, number
    if kind.startswith(("params-", "grads-")):
        return kind, stage, number
    return operation


def _ordered(before: Mapping[Node, set[Node]]) -> tuple[Node, ...]:
    after: dict[Node, list[Node]] = defaultdict(list)
    missing = {node: len(earlier) for node, earlier in before.items()}
    for node, earlier in before.items():
        for one in earlier:
            after[one].append(node)
    ready = [node for node, count in missing.items() if not count]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for later in after[node]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(order) < len(before):
        raise bad_input("the operations depend on each other in a circle: the table mixes steps or ranks")
    return tuple(order)
