"""The bytes of hundreds of thousands of layouts at once, all pipeline ranks of each: the formulas of `memory_rows.py`.

Layouts come as columns that point into lists of what repeats (shares of a unit's work, degrees, pipelines), and are
evaluated together with all others on the same placement. Stages are cut evenly, see `even_stages`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.quantities import MIB
from meshwright.files.setup import Setup
from meshwright.layout.degrees import Layout, Schedule
from meshwright.layout.partition import even_stages
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.predictor import groups
from meshwright.predictor.compute import Share
from meshwright.predictor.live import Live, enough
from meshwright.predictor.memory import (
    Habits,
    context_bytes,
    cut_keeps_input,
    habits_of,
    lives_of,
    manners_of,
    shared_choices,
)  # fmt: skip
from meshwright.predictor.memory_pipeline import Choices, Pipeline, StageSums, rows_of
from meshwright.predictor.memory_rows import row_parts
from meshwright.predictor.memory_table import memory_figures_of
from meshwright.predictor.table import KINDS, Figure, Largest, layers_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SUMMED = [Figure.DENSE, Figure.EXPERT, Figure.ACTIVATION, Figure.ADAPTER, Figure.CAST]
_DENSE, _EXPERT, _KEPT, _ADAPTER, _CAST = range(len(_SUMMED))
_PLAIN = Layout(((),), (0,))


@dataclass(frozen=True)
class Columns:
    """Many layouts: element i is layout i, `share`, `degrees` and `pipeline` point into the lists."""

    shares: Sequence[Share]
    all_degrees: Sequence[groups.Degrees]
    pipelines: Sequence[tuple[Schedule, tuple[int, ...], int]]  # schedule, placement, micro-batches
    share: Ints
    degrees: Ints
    pipeline: Ints
    zero: Ints


@dataclass(frozen=True)
class _Tables:
    """Figures first: sums over the first n units, [figure, share, unit + 1]; of layers, [`Largest`, share, unit]."""

    prefix: Floats
    layers: Floats
    dense: Floats  # [share, unit]
    tied: Floats  # [share]
    layer_kinds: Ints  # [unit] units of equal number have equal figures of layers


def _tables(setup: Setup, shares: Sequence[Share], habits: Habits) -> _Tables:
    figures, tied, kinds, first = memory_figures_of(setup, shares, habits.stack)
    layers = layers_of(figures, kinds)
    prefix = np.zeros((len(shares), len(kinds) + 1, len(_SUMMED)))
    figures[:, :, _SUMMED].cumsum(axis=1, out=prefix[:, 1:])
    by_figure, by_layer = (np.ascontiguousarray(array.transpose(2, 0, 1)) for array in (prefix, layers))
    after = np.append(first[1:], -1)
    layer_kinds = first * (len(kinds) + 1) + np.where(np.append(kinds[1:], -1) == KINDS.index("ffn"), after + 1, 0)
    return _Tables(by_figure, by_layer, figures[:, :, Figure.DENSE], tied, layer_kinds)


def fullest(setup: Setup, of: Columns) -> Floats:
    """Bytes that the fullest pipeline rank of each layout needs (the median: allocated, reserve and context)."""
    habits = habits_of(setup)
    tables, manners = _tables(setup, of.shares, habits), manners_of(setup, habits)
    shared = [shared_choices(setup, share, habits, _PLAIN) for share in of.shares]
    by_share = np.array([(s.boundary, s.gathers, s.waiting, s.at_loss, s.put_off, s.head) for s in shared])
    split = np.array([schedule in SPLIT_BACKWARD for schedule, _, _ in of.pipelines])
    full = np.array([cut_keeps_input(habits.stack, share.recompute) for share in of.shares])
    cluster = setup.proposal.cluster
    by_degrees = np.array(
        [
            (groups.shard_group(cluster, d).size, groups.expert_gradient_group(cluster, d).size, d.dp * d.cp,
             context_bytes(setup, habits.stack, d))
            for d in of.all_degrees
        ]
    )  # fmt: skip
    result = np.zeros(len(of.share))
    known: dict[int, _Even] = {}
    for family, rows in _families(of):
        if not len(rows):  # pipelines that none of these layouts has
            continue
        placement = family[0].placement
        if len(placement) not in known:
            known[len(placement)] = _even(setup, tables, len(placement))
        even = known[len(placement)]
        pipeline = Pipeline(placement, 0, len(placement) - 1, even.mid_layer)
        lives, counts = _lives(pipeline, family, of.pipeline[rows], habits)
        share = of.share[rows]
        boundary, gathers, waiting, at_loss, put_off, head = by_share[share].T[:, :, None]
        shards, experts, replicas, context = by_degrees[of.degrees[rows]].T[:, :, None]
        choices = Choices(
            of.zero[rows][:, None], shards, experts, replicas, False, False, False, counts[:, None], boundary,
            full[share][:, None], gathers, waiting, at_loss, put_off,
            split[of.pipeline[rows]][:, None], 0.0, head, _PLAIN.bucket_mib * MIB, context,
        )  # fmt: skip
        found, _, _ = rows_of(pipeline, lives, _sums(even, tables.tied, share, placement), choices, manners)
        allocated = np.broadcast_to(row_parts(found, habits.recipe).allocated(), (len(rows), pipeline.ranks))
        result[rows] = allocated.max(axis=1) * habits.over + context[:, 0]
    return result


@dataclass(frozen=True, slots=True)
class _Member:
    """One entry of `Columns.pipelines`."""

    index: int
    schedule: Schedule
    placement: tuple[int, ...]
    micro_batches: int


def _families(of: Columns) -> Iterator[tuple[list[_Member], Ints]]:
    """Pipelines that are evaluated together, with their layouts: those of the same placement with one stage a rank,
    others with the same moments."""
    found: dict[object, list[_Member]] = {}
    for index, (schedule, placement, micro_batches) in enumerate(of.pipelines):
        plain = placement == tuple(range(max(placement) + 1))
        key = placement if plain else (schedule, placement, enough(schedule, placement, micro_batches))
        found.setdefault(key, []).append(_Member(index, schedule, placement, micro_batches))
    family_of = np.empty(len(of.pipelines), np.int64)
    for number, members in enumerate(found.values()):
        family_of[[member.index for member in members]] = number
    numbers = family_of[of.pipeline]
    order = np.argsort(numbers, kind="stable")
    ends = np.bincount(numbers, minlength=len(found)).cumsum()
    yield from zip(found.values(), np.split(order, ends[:-1]), strict=True)


@dataclass(frozen=True)
class _Even:
    """Even stages of a number: which begin inside a layer, and the sums of every share, [figure, share, stage]. The
    largest layers are those of stages that hold the same: `alike[stage]` points into [`Largest`, share, pattern]."""

    mid_layer: NDArray[np.bool_]
    figures: Floats
    largest: Floats
    alike: Ints
    ends: Floats


def _even(setup: Setup, tables: _Tables, stages: int) -> _Even:
    names = even_stages(setup.proposal.arch, stages)
    mid_layer = np.array([stage[0].endswith(".ffn") for stage in names])
    sizes = np.array([len(stage) for stage in names])
    ends = np.cumsum(sizes)
    starts = ends - sizes
    layers, cut = tables.layers, starts[mid_layer]
    kinds = tables.layer_kinds
    if len(cut):  # a layer whose other half lies in the next stage
        layers, kinds = layers.copy(), kinds.copy()
        layers[: Largest.GRADIENT, :, cut - 1] -= layers[: Largest.GRADIENT, :, cut]
        kinds[cut - 1] = -1 - kinds[cut - 1]
    _, one, which = np.unique(kinds, return_index=True, return_inverse=True)
    holds = np.zeros((stages, len(one)), np.bool_)
    holds[np.repeat(np.arange(stages), sizes), which] = True
    patterns, alike_stages = np.unique(holds, axis=0, return_inverse=True)
    largest = np.where(patterns, layers[:, :, None, one], -np.inf).max(axis=3)
    at_ends = np.zeros((len(tables.dense), stages))
    at_ends[:, 0] += tables.dense[:, 0]
    at_ends[:, -1] += tables.dense[:, -1]
    figures = tables.prefix[:, :, ends] - tables.prefix[:, :, starts]
    return _Even(mid_layer, figures, largest, alike_stages.reshape(-1), at_ends)


def _lives(pipeline: Pipeline, family: Sequence[_Member], which: Ints, habits: Habits) -> tuple[Live | Floats, Ints]:
    """What is alive, as `rows_of` takes it, and the micro-batches of each layout."""
    position = np.zeros(max(member.index for member in family) + 1, np.int64)
    position[[member.index for member in family]] = np.arange(len(family))
    counts = np.array([member.micro_batches for member in family])[position[which]]
    first = lives_of(pipeline, family[0].schedule, family[0].micro_batches, habits)
    if isinstance(first, Live):
        return first, counts
    diagonals = [np.asarray(lives_of(pipeline, member.schedule, member.micro_batches, habits)) for member in family]
    return np.concatenate(diagonals)[position[which]], counts


def _sums(even: _Even, tied: Floats, share: Ints, placement: tuple[int, ...]) -> StageSums:
    """The sums by stage of the shares that these layouts have."""
    used, of = np.unique(share, return_inverse=True)
    dense, at_ends = even.figures[_DENSE][used], even.ends[used]
    if placement[0] == placement[-1]:
        at_ends[:, -1] -= tied[used]
        dense[:, -1] -= tied[used]
    expert, adapter, kept, cast = (even.figures[figure][used] for figure in (_EXPERT, _ADAPTER, _KEPT, _CAST))
    again, whole, layer, shapes, gradient, tensor = (even.largest[column][used][:, even.alike] for column in Largest)
    return StageSums(dense, expert, at_ends, adapter, kept, again, whole, layer, shapes, gradient, tensor, cast, of)
