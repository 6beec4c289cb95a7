"""The probability of running out: where it lies, how it grows, and what it makes of a plan."""

from collections.abc import Callable
from dataclasses import replace
from math import erf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.topology import Part
from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.running_out import TRACKED, Spread, below, p_oom, quantile
from meshwright.predictor.step import predict

PLAIN = Spread(0.05, (0.0,), "guessed", "a bell curve")
HELD = Spread(0.05, (0.0, 0.03, 0.09), "guessed", "three equally likely reserves")


@pytest.mark.parametrize("sigmas", [-2, -1, 0, 1, 2])
def test_without_a_reserve_it_is_the_bell_curve(sigmas: int) -> None:
    assert below(PLAIN, 1 + 0.05 * sigmas) == pytest.approx(0.5 * (1 + erf(sigmas / sqrt(2))))


def test_with_reserves_it_is_their_mean() -> None:
    each = [below(PLAIN, 1.05 / (1 + reserve)) for reserve in HELD.reserve]
    assert below(HELD, 1.05) == pytest.approx(sum(each) / 3)


@given(share=st.floats(0.01, 0.99))
def test_a_quantile_is_what_is_stayed_below(share: float) -> None:
    assert below(HELD, quantile(HELD, share)) == pytest.approx(share, abs=1e-9)


@given(allocated=st.floats(1, 100), room=st.floats(1, 100), more=st.floats(0, 50))
def test_more_bytes_are_likelier_to_run_out_and_more_room_is_not(allocated: float, room: float, more: float) -> None:
    now = p_oom(HELD, allocated, room)
    assert 0 <= now <= 1
    assert p_oom(HELD, allocated + more, room) >= now - 1e-12
    assert p_oom(HELD, allocated, room + more) <= now + 1e-12


def test_nothing_never_runs_out_and_no_room_always_does() -> None:
    assert p_oom(HELD, 0.0, 0.0) == 0
    assert p_oom(HELD, 1.0, 0.0) == 1


def test_a_plan_fits_when_its_worst_rank_is_likelier_to_fit(
    make_plan: Callable[..., Plan], llama_7b: Architecture
) -> None:
    plan = make_plan(llama_7b, 1, 8, 2048, pp=2, zero=0)
    worst = max(rank.total for rank in rank_memory(plan.setup, plan.layout, plan.batch))
    for limit, fits in ((worst + 2**20, True), (worst - 2**20, False)):
        proposal = plan.setup.proposal
        cluster = replace(proposal.cluster, memory_bytes=limit)
        found = predict(replace(plan, setup=replace(plan.setup, proposal=replace(proposal, cluster=cluster))))
        assert found.fits is fits
        assert max(rank.p_oom or 0 for rank in found.memory) == pytest.approx(0.5, abs=0.01)


def test_each_rank_of_a_mixed_cluster_has_the_memory_of_its_devices(
    make_plan: Callable[..., Plan], make_cluster: Callable[..., object], llama_7b: Architecture
) -> None:
    plan = make_plan(llama_7b, 1, 8, 1024, pp=2, dp=8, zero=1)
    small, large = make_cluster("A100-40GB-SXM", 8), make_cluster("A100-80GB-SXM", 8)
    parts = tuple(Part(c.device, 8, 8, c.intra, c.memory_bytes) for c in (small, large))  # type: ignore[attr-defined]
    proposal = plan.setup.proposal
    cluster = replace(proposal.cluster, parts=parts, memory_bytes=parts[0].memory_bytes)
    setup = replace(plan.setup, proposal=replace(proposal, cluster=cluster))
    first, last = rank_memory(setup, plan.layout, plan.batch)
    assert (first.limit, last.limit) == (parts[0].memory_bytes, parts[1].memory_bytes)
    assert (first.p_oom or 0) > (last.p_oom or 0)


def test_tracked_tensors_have_neither_allocator_nor_context() -> None:
    assert TRACKED.reserve == (0.0,)
    assert quantile(TRACKED, 0.5) == pytest.approx(1.0)
