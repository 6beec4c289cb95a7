"""Partitions: every layer exactly once, even counts, and the exact optimum against brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.layout.partition import balance, balance_placed, even_stages
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of


def arch(layers: int, parallel: bool = False) -> Architecture:
    return Architecture("t", "plain", layers, 64, 4, 4, 16, 256, 1000, parallel_residual=parallel)


def layer_counts(stages: tuple[tuple[str, ...], ...]) -> list[int]:
    return [len({name.split(".")[1] for name in stage if name.startswith("layers")}) for stage in stages]


@settings(max_examples=200, deadline=None)
@given(layers=st.integers(1, 128), p=st.integers(1, 16), v=st.integers(1, 4), parallel=st.booleans())
def test_even_stages_cover_every_unit_once_in_order(layers: int, p: int, v: int, parallel: bool) -> None:
    model = arch(layers, parallel)
    names = [unit.name for unit in units_of(model)]
    if p * v > len(names):
        with pytest.raises(InputError, match=f"= {len(names)}"):
            even_stages(model, p * v)
        return
    stages = even_stages(model, p * v)
    assert [name for stage in stages for name in stage] == names
    assert len(stages) == p * v
    assert all(stages)
    sizes = layer_counts(stages) if p * v <= layers else [len(stage) for stage in stages]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_known_even_splits() -> None:
    assert layer_counts(even_stages(arch(10), 3)) == [4, 3, 3]
    assert layer_counts(even_stages(arch(27), 4)) == [7, 7, 7, 6]
    assert even_stages(arch(1), 1) == (("embed", "layers.0.attn", "layers.0.ffn", "head"),)
    assert even_stages(arch(2), 4) == (
        ("embed", "layers.0.attn"), ("layers.0.ffn", "layers.1.attn"), ("layers.1.ffn",), ("head",),
    )  # fmt: skip


def test_more_stages_than_units_is_refused_with_the_count() -> None:
    with pytest.raises(InputError, match=r"embed \+ 2 layers · 2 units \+ head = 6"):
        even_stages(arch(2), 8)
    with pytest.raises(InputError, match="at least one stage"):
        even_stages(arch(2), 0)


def test_vocabulary_heavier_than_layers_leaves_no_stage_empty() -> None:
    names = [unit.name for unit in units_of(arch(2, parallel=True))]
    cost = {"embed": 800_000.0, "layers.0": 3_500.0, "layers.1": 3_500.0, "head": 800_000.0}
    assert balance(names, cost, 2) == (("embed", "layers.0"), ("layers.1", "head"))
    assert balance(names, cost, 4) == (("embed",), ("layers.0",), ("layers.1",), ("head",))
    with pytest.raises(InputError):
        balance(names, cost, 8)


def test_embeddings_of_the_176b_model_count_as_layers() -> None:
    names = [unit.name for unit in units_of(arch(70, parallel=True))]
    weight = 250_880 * 14_336 / (12 * 14_336**2 + 13 * 14_336)
    assert weight == pytest.approx(1.46, abs=0.005)
    cost = dict.fromkeys(names, 1.0) | {"embed": weight, "head": weight}
    assert layer_counts(balance(names, cost, 12)) == [5, *[6] * 10, 5]


def brute(costs: list[float], stages: int, speed: list[float], placement: list[int]) -> tuple[float, float]:
    """(busiest rank, sum of squared rank loads) of the best partition."""
    best = (np.inf, np.inf)
    for inner in combinations(range(1, len(costs)), stages - 1):
        cuts = [0, *inner, len(costs)]
        loads = [0.0] * (max(placement) + 1)
        for s in range(stages):
            loads[placement[s]] += sum(costs[cuts[s] : cuts[s + 1]]) / speed[placement[s]]
        key = (round(max(loads), 9), sum(load**2 for load in loads))
        if key < (best[0], best[1] - 1e-7):
            best = key
    return best


def loads_of(stages: tuple[tuple[str, ...], ...], cost: dict[str, float], speed: list[float], placement: list[int]):
    loads = [0.0] * (max(placement) + 1)
    for s, stage in enumerate(stages):
        loads[placement[s]] += sum(cost[name] for name in stage) / speed[placement[s]]
    return loads


@settings(max_examples=120, deadline=None)
@given(data=st.data(), costs=st.lists(st.integers(0, 9).map(float), min_size=2, max_size=9))
def test_balance_is_the_optimum(data: st.DataObject, costs: list[float]) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    speed = data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=stages, max_size=stages))
    names = [f"u{i}" for i in range(len(costs))]
    cost = dict(zip(names, costs, strict=True))
    found = balance(names, cost, stages, speed=speed)
    assert [name for stage in found for name in stage] == names
    assert all(found)
    loads = loads_of(found, cost, speed, list(range(stages)))
    worst, squares = brute(costs, stages, speed, list(range(stages)))
    assert max(loads) == pytest.approx(worst)
    assert sum(load**2 for load in loads) == pytest.approx(squares)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), costs=st.lists(st.integers(1, 9).map(float), min_size=4, max_size=9))
def test_balance_placed_is_the_optimum_of_rank_loads(data: st.DataObject, costs: list[float]) -> None:
    stages = data.draw(st.integers(2, min(5, len(costs))))
    ranks = data.draw(st.integers(1, stages))
    placement = data.draw(st.permutations([*range(ranks), *[0] * (stages - ranks)]))
    names = [f"u{i}" for i in range(len(costs))]
    cost = dict(zip(names, costs, strict=True))
    speed = [1.0] * ranks
    loads = loads_of(balance_placed(names, cost, placement), cost, speed, placement)
    worst, squares = brute(costs, stages, speed, placement)
    assert max(loads) == pytest.approx(worst)
    assert sum(load**2 for load in loads) == pytest.approx(squares)


def test_local_search_evens_out_ranks_that_hold_two_stages() -> None:
    names = [unit.name for unit in units_of(arch(40))]
    cost = {name: 2.0 if name.endswith("ffn") else 1.0 for name in names} | {"embed": 0.1, "head": 4.0}
    placement = [0, 1, 2, 3, 0, 1, 2, 3]
    loads = loads_of(balance_placed(names, cost, placement), cost, [1.0] * 4, placement)
    assert sum(loads) == pytest.approx(124.1)
    assert max(loads) <= 32.0  # the mean is 31.0 and the smallest unit is 1


def test_memory_limits_bind_and_slow_stages_get_less() -> None:
    names = [f"layers.{i}" for i in range(8)]
    cost = dict.fromkeys(names, 1.0)
    assert [len(s) for s in balance(names, cost, 2)] == [4, 4]
    assert [len(s) for s in balance(names, cost, 2, speed=[3.0, 1.0])] == [6, 2]
    assert [len(s) for s in balance(names, cost, 2, memory=dict.fromkeys(names, 1.0), limit=[3.0, 9.0])] == [3, 5]
    # the first of two stages keeps two micro-batches alive
    by_stage = [dict.fromkeys(names, 2.0), dict.fromkeys(names, 1.0)]
    assert [len(s) for s in balance(names, cost, 2, memory=by_stage, limit=6.0)] == [3, 5]
    with pytest.raises(InputError, match=r"all units need 8\.00 KiB"):
        balance(names, cost, 2, memory=dict.fromkeys(names, 1024.0), limit=2048.0)
    with pytest.raises(InputError, match="no partition into 4 stages"):
        balance_placed(names, cost, [0, 1, 0, 1], memory=dict.fromkeys(names, 1024.0), limit=2048.0)
