"""Memory against worked public cases: bytes a parameter, a 7 B model on an 80 GB card, shards over nodes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.quantities import GIB
from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import total_parameters
from meshwright.predictor.memory import rank_memory

STATES = ("weights", "gradients", "master", "optimizer")
MakePlan = Callable[..., Plan]


def worst(plan: Plan) -> StageMemory:
    """The pipeline rank that needs most."""
    return max(rank_memory(plan.setup, plan.layout, plan.batch), key=lambda rank: rank.total)


def states_gib(plan: Plan) -> float:
    """GiB of weights, gradients and optimizer states of the fullest rank."""
    return sum(worst(plan).parts[kind] for kind in STATES) / GIB


def seven_billion() -> Architecture:
    """A model of 7.00 B parameters, within 0.1 %."""
    arch = Architecture("7.0B", "llama", 32, 4096, 32, 32, 128, 11648, 32000)
    assert total_parameters(arch) == pytest.approx(7.0e9, rel=2e-3)
    return arch


@pytest.mark.parametrize(
    ("zero", "gradient", "runner", "expected"),
    [
        (0, "bf16", "any", 104.3),
        (0, "fp32", "any", 117.3),
        (1, "bf16", "any", 35.9),
        (1, "fp32", "any", 48.9),
        (2, "bf16", "any", 24.4),
        (2, "fp32", "deepspeed", 27.7),
        (3, "bf16", "any", 13.0),
    ],
)
def test_states_of_seven_billion_parameters_on_eight_ranks(
    make_plan: MakePlan, zero: int, gradient: str, runner: str, expected: float
) -> None:
    arch = seven_billion()
    plan = make_plan(arch, 1, 2, 2048, dp=8, zero=zero, gradient_dtype=gradient, runnable_by=runner)
    exact = states_gib(plan) * 7.0e9 / total_parameters(arch)
    assert exact == pytest.approx(expected, rel=0.01)


def test_more_accumulation_never_needs_more_memory(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """Global batch 32 or 128 at the same number of devices and no pipeline: the same peak."""
    few = make_plan(llama_7b, 1, 4, 32768, dp=8, zero=3)
    many = make_plan(llama_7b, 1, 16, 32768, dp=8, zero=3)
    assert worst(few).parts == worst(many).parts


def test_full_sharding_divides_states_by_the_world(make_plan: MakePlan, llama_7b: Architecture) -> None:
    eight = make_plan(llama_7b, 1, 4, 4096, dp=8, zero=3, gradient_dtype="bf16")
    many = make_plan(llama_7b, 1, 4, 4096, dp=64, zero=3, gradient_dtype="bf16")
    assert states_gib(eight) == pytest.approx(13.0 * 6.738 / 7.0, rel=0.01)
    assert states_gib(many) == pytest.approx(states_gib(eight) / 8, rel=1e-6)


def test_sharded_optimizer_states_follow_a_plus_b_over_n(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """Model states on N ranks are a + b / N; activations do not change with N."""
    plans = {n: make_plan(llama_7b, 1, 4, 4096, dp=8 * n, zero=1) for n in (1, 2, 3, 4, 5)}
    found = {n: states_gib(plan) for n, plan in plans.items()}
    b = (found[1] - found[2]) / (1 / 8 - 1 / 16)
    a = found[1] - b / 8
    for n in (3, 4, 5):
        assert found[n] == pytest.approx(a + b / (8 * n), abs=1e-3)
    assert b == pytest.approx(12 * total_parameters(llama_7b) / GIB, rel=1e-3)
    assert len({worst(plan).parts["activations"] for plan in plans.values()}) == 1


def test_tied_embeddings_lie_in_both_ends_of_a_pipeline(make_plan: MakePlan, llama_7b: Architecture) -> None:
    tied = replace(llama_7b, tied=True)
    one = make_plan(tied, 1, 4, 1024)
    two = make_plan(tied, 1, 4, 1024, pp=2)
    held = [sum(rank.parts["weights"] for rank in rank_memory(p.setup, p.layout, p.batch)) for p in (one, two)]
    assert held[1] - held[0] == 2 * llama_7b.vocab * llama_7b.hidden


def test_one_f_one_b_keeps_fewer_micro_batches_on_later_stages(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 8, 1024, pp=4)
    found = rank_memory(plan.setup, plan.layout, plan.batch)
    assert [rank.in_flight for rank in found] == [4, 3, 2, 1]
    gpipe = make_plan(llama_7b, 1, 8, 1024, pp=4, schedule="gpipe")
    assert [rank.in_flight for rank in rank_memory(gpipe.setup, gpipe.layout, gpipe.batch)] == [8, 8, 8, 8]
    middle = [rank.parts["activations"] for rank in found[1:3]]
    assert middle[0] / middle[1] == pytest.approx(3 / 2, rel=0.01)


def test_a_larger_bucket_takes_more_memory(make_plan: MakePlan, llama_7b: Architecture) -> None:
    sizes = [
        worst(make_plan(llama_7b, 1, 4, 1024, dp=8, bucket_mib=mib)).parts["communication"] for mib in (25, 100, 954)
    ]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] - sizes[0] == pytest.approx(2 * (954 - 25) * 2**20)


@settings(deadline=None)  # the first example reads the tables
@given(
    micro=st.integers(1, 4), tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb-h1"]), recompute=st.sampled_from(["none", "selective", "full"]),
)  # fmt: skip
def test_a_larger_micro_batch_never_needs_less(
    make_plan: MakePlan, llama_7b: Architecture, micro: int, tp: int, pp: int, schedule: str, recompute: str
) -> None:
    shape = {"tp": tp, "pp": pp, "schedule": schedule, "recompute": recompute, "zero": 1, "dp": 2}
    less = make_plan(llama_7b, micro, 4, 1024, **shape)
    more = make_plan(llama_7b, micro + 1, 4, 1024, **shape)
    for a, b in zip(
        rank_memory(less.setup, less.layout, less.batch), rank_memory(more.setup, more.layout, more.batch), strict=True
    ):
        assert a.total < b.total


def test_a_tied_matrix_counts_once_where_one_rank_holds_both_ends(make_plan: MakePlan, llama_7b: Architecture) -> None:
    def weights(tied: bool, schedule: str, vpp: int) -> list[int]:
        plan = make_plan(replace(llama_7b, tied=tied), 1, 8, 512, pp=2, vpp=vpp, schedule=schedule)
        return [rank.parts["weights"] for rank in rank_memory(plan.setup, plan.layout, plan.batch)]

    matrix = 2 * 32000 * 4096  # bf16
    free, tied = weights(False, "zbv", 2), weights(True, "zbv", 2)  # a V: rank 0 has embedding and output matrix
    assert [a - b for a, b in zip(free, tied, strict=True)] == [matrix, 0]
    assert weights(False, "1f1b", 1) == weights(True, "1f1b", 1)  # each end keeps a copy of its own
