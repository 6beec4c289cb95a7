"""The largest that fits, fits; the next larger one does not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.plan import Plan
from meshwright.layout.partition import even_stages
from meshwright.model.parameters import total_parameters
from meshwright.planner.fit import Largest, largest
from meshwright.planner.relief import held

from .memory_plans import pipeline, seven_b

ALLOWED = {"fits": {"fits"}, "tight": {"fits", "tight"}}


def found_in(plan: Plan, what: str, safety: str) -> Largest:
    return next(one for one in largest(plan) if one.what == what and one.safety == safety)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([(8, 1, 1), (4, 2, 1), (2, 2, 2)]), st.sampled_from(["none", "full"]),
    st.sampled_from([24, 40, 80]), st.integers(0, 3),
)  # fmt: skip
def test_every_answer_fits_and_the_next_larger_does_not(
    degrees: tuple[int, int, int], recompute: str, gib: int, zero: int
) -> None:
    dp, tp, cp = degrees
    plan = seven_b(dp=dp, tp=tp, cp=cp, recompute=recompute, memory_gib=gib, zero=zero, runnable_by="any")
    for one in largest(plan):
        assert (one.value is None) == (one.held is None)
        if one.held is not None:
            assert one.held.verdict in ALLOWED[one.safety]
        if one.beyond_held is not None:
            assert one.beyond_held.verdict not in ALLOWED[one.safety]
            assert one.value is None or one.beyond is not None
        if one.value is not None and one.beyond is not None:
            assert one.value < one.beyond


def test_a_sequence_counted_again_from_the_job() -> None:
    """Typed into the job, the answer fits and one step more does not; the step is what the layout needs."""
    plan = seven_b(dp=2, tp=2, cp=2, sp=True, runnable_by="any")
    one = found_in(plan, "seq_len", "tight")
    assert one.value is not None
    assert one.beyond == one.value + 2 * 2 * 2  # two slices a context rank, each divided by the tensor group
    again = held(seven_b(dp=2, tp=2, cp=2, sp=True, runnable_by="any", seq_len=one.value))
    assert (again.verdict, again.fullest.total) == (one.held.verdict, one.held.fullest.total)  # type: ignore[union-attr]
    assert held(seven_b(dp=2, tp=2, cp=2, sp=True, runnable_by="any", seq_len=one.beyond)).verdict == "does not fit"


def test_micro_batches_that_keep_the_global_batch_divide_a_replicas_share() -> None:
    plan = seven_b(recompute="full")
    kept, any_one = (found_in(plan, what, "tight") for what in ("micro_batch", "micro_batch of any global batch"))
    assert kept.value is not None
    assert any_one.value is not None
    assert (64 // 8) % kept.value == 0
    assert any_one.value >= kept.value
    again = seven_b(recompute="full", micro_batch=any_one.value, **{"global": any_one.value * 8 * 4})
    assert held(again).fullest.total == any_one.held.fullest.total  # type: ignore[union-attr]


@pytest.mark.parametrize("stages", [2, 4])
def test_layers_counted_again(stages: int) -> None:
    plan = pipeline(stages)
    one = found_in(plan, "layers", "tight")
    assert one.value is not None
    arch = replace(plan.setup.proposal.arch, layers=one.value)
    assert one.parameters == total_parameters(arch)
    again = pipeline(stages, layers=one.value // stages * stages)
    assert held(again).fullest.total <= one.held.fullest.total  # type: ignore[union-attr]
    assert [len(stage) for stage in even_stages(arch, stages)]


def test_widths_keep_the_models_proportions() -> None:
    plan = seven_b(dp=4, tp=2, kv_heads=8, zero=1)
    one = found_in(plan, "hidden", "tight")
    assert one.value is not None
    assert one.value % (4 * 128 * 1) == 0  # four query heads of 128 share a key-value head
    assert (one.value // 512) % 2 == 0  # and each tensor rank has whole ones


def test_nothing_fits_a_device_that_the_states_alone_fill() -> None:
    plan = seven_b(memory_gib=16)
    assert found_in(plan, "micro_batch", "tight").value is None
    one = found_in(plan, "seq_len", "tight")
    assert (one.value, one.held, one.beyond) == (None, None, 1)
    small = found_in(plan, "layers", "tight")
    assert small.value is not None
    assert 1 <= small.value < 32
