"""Cases of kind C about how layers and experts are dealt out: the planner's part."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.layout.experts import spread, worst_over_mean
from meshwright.layout.partition import balance, even_stages
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import unit_parameters
from meshwright.model.units import units_of

from .jobs import check, job, rules, said, warned

ARCH = Architecture("m", "llama", 10, 64, 4, 4, 16, 128, 256)


def layers_of(stages: tuple[tuple[str, ...], ...]) -> list[list[int]]:
    """The layers that begin or end on each stage, in order."""
    return [list(dict.fromkeys(int(u.split(".")[1]) for u in stage if u.startswith("layers."))) for stage in stages]


def covers(arch: Architecture, stages: tuple[tuple[str, ...], ...]) -> bool:
    return tuple(unit for stage in stages for unit in stage) == tuple(unit.name for unit in units_of(arch))


def test_c2_ten_layers_on_three_ranks() -> None:
    assert [len(layers) for layers in layers_of(even_stages(ARCH, 3))] == [4, 3, 3]
    assert [len(layers) for layers in layers_of(even_stages(replace(ARCH, layers=27), 4))] == [7, 7, 7, 6]


def test_c2_the_last_chunk_of_61_layers() -> None:
    arch = replace(ARCH, layers=61)
    stages = even_stages(arch, 8, last=5)
    assert [len(layers) for layers in layers_of(stages)] == [8, 8, 8, 8, 8, 8, 8, 5]
    assert covers(arch, stages)


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 128), st.integers(1, 16), st.integers(1, 4))
def test_c2_even_stages_are_disjoint_ordered_and_complete(layers: int, pp: int, vpp: int) -> None:
    arch, n = replace(ARCH, layers=layers), pp * vpp
    if n > 2 * layers + 2:
        with pytest.raises(InputError, match="stages need at least"):
            even_stages(arch, n)
        return
    stages = even_stages(arch, n)
    assert len(stages) == n
    assert covers(arch, stages)
    assert all(stages)
    if n <= layers:
        sizes = [len(held) for held in layers_of(stages)]
        assert max(sizes) - min(sizes) <= 1
        assert sorted(layer for held in layers_of(stages) for layer in held) == list(range(layers))
    else:
        sizes = [len(stage) for stage in stages]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 128), st.integers(1, 16), st.integers(1, 4), st.none() | st.integers(0, 20),
       st.none() | st.integers(0, 20))  # fmt: skip
def test_c2_stages_with_given_ends(layers: int, pp: int, vpp: int, first: int | None, last: int | None) -> None:
    arch, n = replace(ARCH, layers=layers), pp * vpp
    given_ends = [end for end in (first, last) if end is not None]
    middle, rest = n - len(given_ends), layers - sum(given_ends)
    if not given_ends or n > 2 * layers + 2:
        return
    if middle < 0 or rest < middle or (middle == 0 and rest):
        with pytest.raises(InputError):
            even_stages(arch, n, first, last)
        return
    stages = even_stages(arch, n, first, last)
    assert covers(arch, stages)
    sizes = [len(held) for held in layers_of(stages)]
    assert first is None or sizes[0] == first
    assert last is None or sizes[-1] == last
    between = sizes[first is not None : len(sizes) - (last is not None)]
    assert not between or max(between) - min(between) <= 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.randoms())
def test_c2_weighted_stages_lose_and_double_nothing(layers: int, n: int, random: object) -> None:
    arch = replace(ARCH, layers=layers)
    names = [unit.name for unit in units_of(arch)]
    if n > len(names):
        return
    cost = {name: random.uniform(0.1, 9.0) for name in names}  # type: ignore[attr-defined]
    stages = balance(names, cost, n)
    assert covers(arch, stages)
    assert all(stages)


TOY = "layers = 2\nhidden = 16\nheads = 2\nffn_hidden = 43\nvocab = 50000"


def test_c3_a_vocabulary_that_dwarfs_the_layers(tmp_path: Path) -> None:
    for pp in (2, 4):
        file = job(tmp_path, TOY, f'gpu = "A100-80GB-SXM"\ngpus = {pp}', "global = 8\nseq_len = 64",
                   f"[layout]\npp = {pp}\ndp = 1\ntp = 1\ncp = 1")  # fmt: skip
        answer = check(file)
        assert answer["valid"] is True
        words = said(answer, "ends-dominate")
        share = float(words.split("hold ")[1].split("%")[0])
        assert share >= 99
        assert "put them on different ones" in words
    file = job(tmp_path, TOY, 'gpu = "A100-80GB-SXM"\ngpus = 8', "global = 8\nseq_len = 64",
               "[layout]\npp = 8\ndp = 1\ntp = 1\ncp = 1")  # fmt: skip
    answer = check(file)
    assert rules(answer) == ["enough-units"]
    assert "8 stages need at least 8 units, and the model has 6: embed, 2 layers of 2, head" in said(
        answer, "enough-units"
    )
    assert "layout.pp from 1 to 6" in said(answer, "enough-units")


@pytest.mark.parametrize("pp", [2, 4, 6])
def test_c3_no_stage_is_empty_however_small_its_cost(pp: int) -> None:
    arch = Architecture("toy", "llama", 2, 16, 2, 2, 8, 43, 50000)
    sizes = {unit.name: float(unit_parameters(arch, unit)) for unit in units_of(arch)}
    stages = balance(list(sizes), sizes, pp)
    assert all(sum(sizes[unit] for unit in stage) > 0 for stage in stages)
    assert "embed" in stages[0]
    assert "head" in stages[-1]


def test_c6_thirty_experts_on_eight_ranks(tmp_path: Path) -> None:
    assert Counter(spread(30, 8)) == {4: 6, 3: 2}
    assert worst_over_mean(30, 8) == pytest.approx(4 / 3.75)
    moe = "layers = 2\nhidden = 256\nheads = 4\nffn_hidden = 512\nvocab = 1000\nexperts = 30\nactive_experts = 2"
    file = job(tmp_path, moe, 'gpu = "A100-80GB-SXM"\ngpus = 8', "global = 64\nseq_len = 128",
               "[layout]\nep = 8\ndp = 8\ntp = 1\npp = 1\ncp = 1\nzero = 0\nrecompute = 'none'")  # fmt: skip
    answer = check(file)
    assert answer["valid"] is True
    words = said(answer, "experts-uneven")
    assert "6 ranks of 4 and 2 ranks of 3" in words
    assert "4 / 3.75 = 1.07×" in words
    assert "layout.ep = 6 or 10" in words


def test_c6_the_fullest_rank_decides_what_is_held() -> None:
    arch = Architecture("moe", "mixtral", 1, 64, 4, 4, 16, 128, 256, experts=30, active_experts=2)
    ffn = units_of(arch)[2]
    one = 3 * 64 * 128
    even, uneven = (unit_parameters(arch, ffn, ep=ep) for ep in (10, 8))
    assert uneven - even == one  # 4 experts instead of 3, never 9


def test_c6_more_imbalance_than_ranks_is_impossible(tmp_path: Path) -> None:
    moe = "layers = 2\nhidden = 256\nheads = 4\nffn_hidden = 512\nvocab = 1000\nexperts = 8\nactive_experts = 1"
    file = job(tmp_path, moe, 'gpu = "A100-80GB-SXM"\ngpus = 8', "global = 64\nseq_len = 128", "[layout]\nep = 8")
    assert check(file, "training.expert_imbalance=8.0")["valid"] is True  # every token on one rank of eight
    answer = check(file, "training.expert_imbalance=9.0")
    assert rules(answer) == ["expert-imbalance"]
    assert "experts-uneven" not in warned(answer)
