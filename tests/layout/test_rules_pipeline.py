"""Stages, placement, chunks and schedules."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.layout.partition import even_stages
from meshwright.layout.rules import legal
from meshwright.model.units import units_of

from .proposals import LLAMA, errors, found, on, propose, text


def test_more_stages_than_units() -> None:
    toy = replace(LLAMA, layers=2, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn_hidden=32, vocab=50000)
    for pp, right in ((2, True), (4, True), (6, True), (8, False)):
        assert legal(propose(toy, cluster=on(pp), pp=pp, batch=24)) == right
    assert "the model has 6: embed, 2 layers of 2, head" in found(propose(toy, pp=8))["enough-units"].message


def test_stages_that_lose_double_or_swap_units() -> None:
    names = tuple(unit.name for unit in units_of(replace(LLAMA, layers=2)))
    small = replace(LLAMA, layers=2)
    for stages, fault in (
        ((names[:2], names[3:]), "missing: layers.0.ffn"),
        ((names[:3], names[2:]), "held twice: layers.0.ffn"),
        ((names[:2], (names[3], names[2], *names[4:])), "out of order"),
        ((names, ()), "empty: stage 1"),
        (((*names, "layers.9.attn"), ()), "unknown: layers.9.attn"),
    ):
        asked = propose(small, pp=2, stages=stages)
        assert errors(asked) == ["stages-cover"]
        assert fault in found(asked)["stages-cover"].message
    assert legal(propose(small, pp=2, stages=(names[:3], names[3:])))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 4))
def test_even_stages_always_cover(layers: int, pp: int, vpp: int) -> None:
    arch = replace(LLAMA, layers=layers)
    if pp * vpp <= 2 * layers + 2:
        asked = propose(arch, pp=pp, vpp=vpp, stages=even_stages(arch, pp * vpp))
        assert not {"stages-cover", "stage-count"} & set(errors(asked))


def test_a_batch_cannot_be_cut_into_unequal_micro_batches() -> None:
    asked = propose(batch=8, cluster=on(3), dp=1, tp=1, pp=3, cp=1, micro_batches=3)
    assert errors(asked) == ["batch-equation"]
    assert "batch.global = 6 or 9" in text(found(asked)["batch-equation"])


def test_placement() -> None:
    stages = even_stages(LLAMA, 3)
    assert legal(propose(pp=2, stages=stages, placement=(0, 1, 0)))
    assert errors(propose(pp=2, stages=stages)) == ["stage-count"]
    assert errors(propose(pp=2, stages=stages, placement=(0, 1))) == ["stage-count"]
    assert "no pipeline rank 2" in found(propose(pp=2, stages=stages, placement=(0, 1, 2)))["placement"].message
    assert "rank 1 holds nothing" in found(propose(pp=2, stages=stages, placement=(0, 0, 0)))["placement"].message


def test_chunks_and_schedules() -> None:
    assert errors(propose(pp=2, vpp=2, schedule="1f1b")) == ["chunks"]
    assert errors(propose(pp=2, vpp=3, schedule="zbv")) == ["chunks"]
    assert legal(propose(pp=2, vpp=2, schedule="interleaved"))
    six = propose(cluster=on(6), batch=3, dp=1, pp=6, vpp=2, schedule="interleaved", micro_batch=1)
    assert errors(six) == ["schedule-micro-batches"]
    assert "multiple of pp = 6, not 3" in found(six)["schedule-micro-batches"].message


@pytest.mark.parametrize(("pp", "m", "idle"), [(8, 1, "87.5%"), (6, 3, "62.5%")])
def test_fewer_micro_batches_than_stages_is_a_warning_with_the_idle_share(pp: int, m: int, idle: str) -> None:
    asked = propose(cluster=on(pp), batch=m, dp=1, tp=1, pp=pp, cp=1, schedule="gpipe", micro_batch=1)
    assert errors(asked) == []
    assert idle in found(asked)["few-micro-batches"].message


def test_uneven_chunks_count_by_rank() -> None:
    """Four stages on two ranks: what one chunk has too much the other may have too little."""
    arch = replace(LLAMA, layers=16)
    names = tuple(unit.name for unit in units_of(arch))

    def cut(*sizes: int) -> tuple[tuple[str, ...], ...]:
        ends = [0, *(sum(sizes[: i + 1]) for i in range(len(sizes)))]
        return tuple(names[a:b] for a, b in pairwise(ends))

    skewed = propose(arch, pp=2, vpp=2, schedule="interleaved", stages=cut(15, 4, 11, 4))
    said = found(skewed)["uneven-stages"].message
    assert "stage 0" in said
    evened = propose(arch, pp=2, vpp=2, schedule="interleaved", stages=cut(15, 10, 3, 6))
    assert "uneven-stages" not in found(evened)
