"""A partition that levels memory: units move from the fullest pipeline rank to others until none gains."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.schedules import default_placement
from meshwright.planner.cutting import Cutter, Stages, pieces_of, proportions
from meshwright.planner.refusals import whole_layers
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.table import layout_table

_ROUNDS = 40
"""Moves after which leveling stops: each takes at least one piece off the fullest rank."""

Pieces = tuple[tuple[str, ...], ...]
Bytes = tuple[int, ...]  # by pipeline rank


def totals(setup: Setup, layout: Layout, batch: Batch) -> Bytes:
    """Bytes of each pipeline rank."""
    return tuple(rank.total for rank in rank_memory(setup, layout, batch))


def cut_by_time(setup: Setup, layout: Layout, batch: Batch, chunks: int = 1) -> Layout:
    """The layout with its units cut anew for `layout.pp` ranks of `chunks` stages each, the slowest stage as fast as
    can be. Raises ValueError when there are fewer units than stages."""
    placement = default_placement(layout.schedule, layout.pp, chunks)
    names = tuple(name for stage in layout.stages for name in stage)
    rough = replace(layout, stages=(names,), placement=(0,), pp=1, vpp=1)  # costs by unit do not depend on the cut
    table = layout_table(setup, replace(rough, recompute_layers=None), batch)
    stages = Cutter(whole_layers(setup))(table, proportions(table), placement)
    if stages is None:
        raise ValueError(f"{len(placement)} stages are more than the model has units")
    return replace(layout, stages=stages, placement=placement, vpp=chunks)


def level(setup: Setup, layout: Layout, batch: Batch, enough: float = 0.0) -> Layout:
    """The layout whose fullest pipeline rank holds the least that moving units between stages finds, or at most
    `enough` bytes: the same number of stages on the same ranks. A local search: a round shifts one piece from the
    fullest rank along a run of stages, to the emptiest rank where that helps."""
    if len(layout.placement) == 1:
        return layout
    pieces = pieces_of([name for stage in layout.stages for name in stage], whole_layers(setup))
    firsts = [piece[0] for piece in pieces]
    if not all(stage[0] in firsts for stage in layout.stages):
        return layout  # cut inside what may not be cut: the user's own choice
    cuts = [firsts.index(stage[0]) for stage in layout.stages[1:]]

    def measure(at: Sequence[int]) -> Bytes:
        return totals(setup, replace(layout, stages=_stages(pieces, at)), batch)

    return replace(layout, stages=_stages(pieces, _search(cuts, len(pieces), layout.placement, measure, enough)))


def _stages(pieces: Pieces, cuts: Sequence[int]) -> Stages:
    edges = [0, *cuts, len(pieces)]
    parts = [pieces[first:last] for first, last in pairwise(edges)]
    return tuple(tuple(name for piece in part for name in piece) for part in parts)


def _search(
    cuts: list[int],
    pieces: int,
    placement: Sequence[int],
    measure: Callable[[Sequence[int]], Bytes],
    enough: float,
) -> list[int]:
    now = measure(cuts)
    for _ in range(_ROUNDS):
        if max(now) <= enough:
            break
        better = next(_better(cuts, pieces, placement, now, measure), None)
        if better is None:
            break
        cuts, now = better
    return cuts


def _better(
    cuts: list[int], pieces: int, placement: Sequence[int], now: Bytes, measure: Callable[[Sequence[int]], Bytes]
) -> Iterator[tuple[list[int], Bytes]]:
    """Shifts that leave the fullest rank with less; those towards the emptiest ranks are tried first."""
    fullest = now.index(max(now))
    targets = sorted(range(len(placement)), key=lambda stage: now[placement[stage]])
    for stage in (s for s, rank in enumerate(placement) if rank == fullest):
        for target in targets:
            moved = _shifted(cuts, stage, target, pieces)
            found = now if moved is None else measure(moved)
            if moved is not None and max(found) < max(now):
                yield moved, found


def _shifted(cuts: Sequence[int], stage: int, target: int, pieces: int) -> list[int] | None:
    """One piece off `stage`: every boundary from it to `target` moves by one. None where that empties a stage."""
    step = -1 if target > stage else 1
    moving = range(min(stage, target), max(stage, target))
    moved = [cut + step if index in moving else cut for index, cut in enumerate(cuts)]
    return moved if target != stage and all(a < b for a, b in pairwise([0, *moved, pieces])) else None
