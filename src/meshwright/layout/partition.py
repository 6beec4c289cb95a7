"""Which units each pipeline stage holds: even, or balanced by cost. The one partition optimiser of the project."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import bytes_text
from meshwright.layout.alike import alike_cuts
from meshwright.layout.placed import best_cuts
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of

Stages = tuple[tuple[str, ...], ...]
Floats = NDArray[np.float64]

_CLOSE = 1e-9  # relative: sums of the same costs in another order count as equal


def even_stages(arch: Architecture, n_stages: int, first: int | None = None, last: int | None = None) -> Stages:
    """Whole layers spread over `n_stages` stages: counts differ by at most one and earlier stages get more.

    `embed` goes with the first layers and `head` with the last: 10 layers on 3 stages are 4, 3, 3. With more stages
    than layers, units are spread in the same manner instead. `first` and `last` fix the layers of an end stage (0: the
    embedding or the head alone); the others share the rest. Raises InputError when there are more stages than units,
    or when the ends leave the others too many layers or too few.
    """
    names = [unit.name for unit in units_of(arch)]
    _enough(names, n_stages)
    if n_stages > arch.layers and first is None and last is None:
        return _cut(names, _even_cuts(len(names), n_stages))
    per_layer = (len(names) - 2) // arch.layers
    cuts = 1 + per_layer * np.cumsum([0, *_layer_counts(arch.layers, n_stages, first, last)])
    cuts[0], cuts[-1] = 0, len(names)
    return _cut(names, cuts)


def balance(
    unit_names: Sequence[str],
    cost: Mapping[str, float],
    n_stages: int,
    *,
    speed: Sequence[float] | None = None,
    memory: Mapping[str, float] | Sequence[Mapping[str, float]] | None = None,
    limit: float | Sequence[float] | None = None,
) -> Stages:
    """The contiguous partition with the smallest slowest stage; exact.

    `cost` is seconds a unit (any unit of time), `speed[s]` divides it on stage s. `memory` is bytes a unit, alike on
    all stages or one mapping a stage (early stages hold more micro-batches); a stage stays within `limit`. Every
    stage gets at least one unit. Among equally good partitions the most even one (least sum of squares) is taken,
    then the one whose earlier stages hold more. Raises InputError when there are more stages than units or no
    partition keeps within the limit. Dynamic programming over (stage, first unit): O(stages · units²), vectorised.
    """
    _enough(unit_names, n_stages)
    prefix = _prefix([cost[name] for name in unit_names])
    if speed is None and (memory is None or limit is None) and bool((np.diff(prefix) > 0).all()):
        return _cut(unit_names, alike_cuts(prefix, n_stages))
    allowed = _within_memory(unit_names, n_stages, memory, limit)
    sums = np.subtract.outer(prefix, prefix).T  # sums[i, j]: units i..j-1
    n = len(unit_names)
    ahead = np.arange(n + 1)[:, None] < np.arange(n + 1)[None, :]
    speeds = np.ones(n_stages) if speed is None else np.asarray(speed, np.float64)
    if speed is None and (memory is None or limit is None):
        times = [np.where(ahead, sums, np.inf)] * n_stages  # all stages alike: one array serves
    else:
        times = [np.where(ahead & ok, sums / s, np.inf) for ok, s in zip(allowed, speeds, strict=True)]

    best = np.where(np.arange(n + 1) == 0, 0.0, np.inf)  # best[j]: smallest maximum with units 0..j-1 placed so far
    for stage in times:
        best = np.maximum(best[:, None], stage).min(axis=0)
    bound = best[n]
    if not np.isfinite(bound):
        raise _no_room(unit_names, n_stages, memory, limit)

    squares = np.where(np.arange(n + 1) == 0, 0.0, np.inf)
    totals: list[Floats] = []
    squared: dict[int, Floats] = {}
    for stage in times:
        if id(stage) not in squared:
            squared[id(stage)] = np.where(stage <= bound * (1 + _CLOSE), stage, np.inf) ** 2
        total = squares[:, None] + squared[id(stage)]
        totals.append(total)
        squares = total.min(axis=0)
    cuts = [n]
    for total in reversed(totals):
        column = total[:, cuts[-1]]
        equal = np.flatnonzero(column <= column.min() * (1 + _CLOSE))
        cuts.append(int(equal[-1]))  # the later the cut, the fewer units on the later stage
    return _cut(unit_names, np.array(cuts[::-1]))


def balance_placed(
    unit_names: Sequence[str],
    cost: Mapping[str, float],
    placement: Sequence[int],
    *,
    speed: Sequence[float] | None = None,
    memory: Mapping[str, float] | None = None,
    limit: float | Sequence[float] | None = None,
) -> Stages:
    """The contiguous partition into `len(placement)` stages with the smallest busiest rank.

    `placement[s]` is the rank of stage s; `speed` and `limit` are by rank. With one stage a rank this is `balance`.
    Otherwise exact by enumeration where that is at most 200,000 partitions, else the best of a local search from
    `balance`'s answer. Raises InputError when there are too many stages, or no partition within the limit is found.
    """
    n_stages, ranks = len(placement), max(placement) + 1
    speeds = [1.0] * ranks if speed is None else list(speed)
    limits = None if limit is None else np.broadcast_to(np.asarray(limit, np.float64), (ranks,))
    if n_stages == ranks:
        by_stage = None if limits is None else [float(limits[rank]) for rank in placement]
        stage_speed = [speeds[rank] for rank in placement]
        return balance(unit_names, cost, n_stages, speed=stage_speed, memory=memory, limit=by_stage)
    _enough(unit_names, n_stages)
    holds = np.zeros((n_stages, ranks))
    holds[np.arange(n_stages), placement] = 1.0
    costs = _prefix([cost[name] for name in unit_names])
    sizes = None if memory is None else _prefix([memory[name] for name in unit_names])
    start = np.cumsum([0, *(len(stage) for stage in balance(unit_names, cost, n_stages))])
    cuts = best_cuts(costs, holds / np.asarray(speeds), holds, start, sizes, limits)
    if cuts is None:
        raise _no_room(unit_names, n_stages, memory, limit)
    return _cut(unit_names, cuts)


def _cut(names: Sequence[str], cuts: NDArray[np.int64]) -> Stages:
    return tuple(tuple(names[first:last]) for first, last in pairwise(cuts.tolist()))


def _even_cuts(items: int, parts: int) -> NDArray[np.int64]:
    each, more = divmod(items, parts)
    return np.cumsum([0, *(each + (part < more) for part in range(parts))])


def _layer_counts(layers: int, stages: int, first: int | None, last: int | None) -> list[int]:
    """Layers of each stage, the ends as given."""
    ends = [] if first is None else [first]
    tail = [] if last is None else [last]
    middle, rest = stages - len(ends) - len(tail), layers - sum(ends) - sum(tail)
    if middle < 0 or rest < middle or min([*ends, *tail, 0]) < 0 or (middle == 0 and rest):
        fixed = ", ".join(f"{name} {count}" for name, count in (("first", first), ("last", last)) if count is not None)
        raise bad_input(
            f"{stages} stages with {fixed} layers cannot hold {layers} layers, at least one on every other stage",
            field="layout.stages", legal=f"{middle} layers or more for the {middle} stages between",
        )  # fmt: skip
    each, more = divmod(rest, middle) if middle else (0, 0)
    return [*ends, *(each + (part < more) for part in range(middle)), *tail]


def _prefix(values: Sequence[float]) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, np.float64))])


def _within_memory(
    names: Sequence[str],
    n_stages: int,
    memory: Mapping[str, float] | Sequence[Mapping[str, float]] | None,
    limit: float | Sequence[float] | None,
) -> list[NDArray[np.bool_]]:
    """For each stage, which (first, end) pairs of units keep within its limit."""
    if memory is None or limit is None:
        return [np.array(True)] * n_stages
    by_stage = [memory] * n_stages if isinstance(memory, Mapping) else list(memory)
    limits = np.broadcast_to(np.asarray(limit, np.float64), (n_stages,))
    allowed = []
    for stage, most in zip(by_stage, limits, strict=True):
        prefix = _prefix([stage[name] for name in names])
        needs = np.subtract.outer(prefix, prefix).T
        allowed.append(needs <= most * (1 + _CLOSE))
    return allowed


def _enough(names: Sequence[str], n_stages: int) -> None:
    if n_stages < 1:
        raise bad_input("a pipeline has at least one stage", field="layout.stages", value=n_stages)
    if n_stages > len(names):
        layers = len({name.split(".")[1] for name in names if name.startswith("layers.")})
        ends = [name for name in names if not name.startswith("layers.")]
        parts = (len(names) - len(ends)) // layers if layers else 0
        pieces = [*ends[:1], f"{layers} layers · {parts} units", *ends[1:]] if layers else ends
        raise bad_input(
            f"{n_stages} stages need at least {n_stages} units, and the model has {' + '.join(pieces)} = {len(names)}",
            field="layout.stages", value=n_stages, legal=f"1 to {len(names)} stages",
        )  # fmt: skip


def _no_room(
    names: Sequence[str],
    n_stages: int,
    memory: Mapping[str, float] | Sequence[Mapping[str, float]] | None,
    limit: float | Sequence[float] | None,
) -> Exception:
    first = memory if isinstance(memory, Mapping) else (memory or ({},))[0]
    total = sum(first.values()) if first else 0.0
    largest = max(names, key=lambda name: first.get(name, 0.0))
    room = float(np.sum(np.broadcast_to(np.asarray(limit if limit is not None else np.inf), (n_stages,))))
    return bad_input(
        f"no partition into {n_stages} stages keeps within the memory limit: all units need {bytes_text(total)}, the "
        f"stages offer {bytes_text(room)} together, and the largest unit, {largest}, needs "
        f"{bytes_text(first.get(largest, 0.0))}",
        field="layout.stages",
    )  # fmt: skip
