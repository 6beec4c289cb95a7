"""The prediction of a step: terms that add up, ideals from the literature, public cases."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.layout.schedules import actions
from meshwright.model.architecture import Architecture
from meshwright.model.flops import step_model_flops
from meshwright.model.units import units_of
from meshwright.predictor.costs import pipeline_bound, step_costs
from meshwright.predictor.pipeline import simulate
from meshwright.predictor.step import pipeline_ends, predict, predicted_timeline
from meshwright.predictor.table import layout_table, stage_table
from meshwright.timeline.columns import Action, Kind

MakePlan = Callable[..., Plan]
TERMS = {
    "compute", "recompute", "imbalance", "bubble", "tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm", "optimizer",
    "host",
}  # fmt: skip
TINY = Architecture("tiny", "llama", 8, 256, 8, 4, 32, 688, 2048)


def same_times(plan: Plan, forward: float = 0.01, backward: float = 0.02) -> MeasuredUnits:
    """Layer units measured with equal times, ends with nearly none."""
    times = {
        unit.name: UnitTime(forward, backward, 4) if unit.layer is not None else UnitTime(1e-9, 1e-9, 4)
        for unit in units_of(plan.setup.proposal.arch)
    }
    return MeasuredUnits(times, plan.batch.micro_batch, plan.batch.seq_len, 1, "none", "dilated", 1e-6)


SHAPES = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 4]), "tp": st.sampled_from([1, 2]), "pp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]), "zero": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]), "overlap": st.booleans(), "sp": st.booleans(),
        "schedule": st.sampled_from(["1f1b", "gpipe", "zb-h1"]), "gpu": st.sampled_from(["A100", "H100"]),
    }
)  # fmt: skip


@settings(max_examples=60)
@given(shape=SHAPES, micro=st.sampled_from([1, 2]), rounds=st.integers(1, 3))
def test_terms_sum_to_the_step_and_none_is_negative(
    make_plan: MakePlan, shape: dict[str, object], micro: int, rounds: int
) -> None:
    found = predict(make_plan(TINY, micro, rounds * 4, 512, **shape))
    assert set(found.terms) == TERMS
    assert sum(found.terms.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    assert all(seconds >= -1e-12 for seconds in found.terms.values())
    assert found.step_time_range_s[0] < found.step_time_s < found.step_time_range_s[1]
    assert 0 <= found.bubble_fraction < 1
    assert all(0 <= idle < 1 for idle in found.idle_fraction)
    assert found.mfu is not None
    assert 0 < found.mfu < 1
    assert found.exposed_comm_s <= found.step_time_s


@settings(max_examples=60)
@given(
    shape=SHAPES, rounds=st.integers(1, 3),
    cuts=st.lists(st.integers(1, 17), min_size=3, max_size=3, unique=True).map(sorted),
)  # fmt: skip
def test_the_bound_never_exceeds_the_simulation(
    make_plan: MakePlan, shape: dict[str, object], rounds: int, cuts: list[int]
) -> None:
    """Uneven stages included: stages of a pipeline of four are cut anywhere."""
    names = [unit.name for unit in units_of(TINY)]
    if shape["pp"] == 4:
        bounds = [0, *cuts, len(names)]
        shape = {**shape, "stages": tuple(tuple(names[a:b]) for a, b in pairwise(bounds))}
    plan = make_plan(TINY, 1, 4 * rounds, 512, **shape)
    stages = stage_table(layout_table(plan.setup, plan.layout, plan.batch), plan.layout.stages, plan.layout.placement)
    costs = step_costs(plan.setup, plan.layout, plan.batch, stages)
    bound = pipeline_bound(
        plan.layout.placement, costs.actions, costs.hop_s, plan.batch.micro_batches, plan.layout.schedule == "zb-h1"
    )
    ends = pipeline_ends(plan.layout, plan.batch, costs)
    assert np.all(bound <= ends * (1 + 1e-9))


def test_work_that_waits_for_the_host_still_adds_up(make_plan: MakePlan) -> None:
    # 64 tokens a micro-batch: launching the kernels takes longer than running them, recompute's as well
    for recompute in ("none", "selective", "full"):
        found = predict(make_plan(TINY, 1, 4, 64, recompute=recompute))
        assert sum(found.terms.values()) == pytest.approx(found.step_time_s, rel=1e-9)
        assert found.terms["host"] > found.terms["compute"] > 0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("pp", "m", "idle"), [(8, 1, 7 / 8), (4, 1, 0.75), (4, 8, 3 / 11), (2, 8, 1 / 9)])
def test_the_idle_share_of_equal_stages(
    make_plan: MakePlan, llama_7b: Architecture, schedule: str, pp: int, m: int, idle: float
) -> None:
    """(p - 1) / (m + p - 1), GPipe and 1F1B alike (Narayanan et al. 2021)."""
    plan = make_plan(llama_7b, 1, m, 512, pp=pp, schedule=schedule)
    assert predict(plan, same_times(plan)).bubble_fraction == pytest.approx(idle, abs=0.02)


def test_interleaving_divides_the_bubble(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plain = make_plan(llama_7b, 1, 8, 512, pp=4)
    chunks = make_plan(llama_7b, 1, 8, 512, pp=4, vpp=4, schedule="interleaved")
    once, four = (predict(plan, same_times(plan)) for plan in (plain, chunks))
    assert once.bubble_fraction == pytest.approx(3 / 11, abs=0.02)
    assert four.bubble_fraction == pytest.approx(3 / (4 * 8 + 3), abs=0.02)


def test_idle_shares_of_uneven_stages(make_plan: MakePlan) -> None:
    """Stages of 1, 1, 1 and 5 layers: the last computes all the time that matters, the others wait."""
    names = [unit.name for unit in units_of(TINY)]
    stages = (tuple(names[:3]), tuple(names[3:5]), tuple(names[5:7]), tuple(names[7:]))
    plan = make_plan(TINY, 1, 8, 512, pp=4, stages=stages)
    found = predict(plan, same_times(plan))
    orders = actions("1f1b", (0, 1, 2, 3), 8)
    ideal = simulate(orders, (0, 1, 2, 3), [0.02, 0.02, 0.02, 0.1], [0.04, 0.04, 0.04, 0.2])
    assert found.stage_compute_s == pytest.approx(ideal.busy_s, rel=1e-3)
    assert found.terms["imbalance"] == pytest.approx(max(ideal.busy_s) - np.mean(ideal.busy_s), rel=1e-3)
    assert found.idle_fraction[0] > 0.75 > 0.2 > found.idle_fraction[3]


def test_mfu_counts_model_flops_over_the_dense_peak(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 2, 8, 4096, dp=8, zero=1)
    found = predict(plan)
    flops = step_model_flops(llama_7b, plan.batch.tokens, 4096)
    assert found.mfu == pytest.approx(flops / (found.step_time_s * 8 * 312e12))
    assert found.tokens_per_s == pytest.approx(plan.batch.tokens / found.step_time_s)
    assert 0.4 < found.mfu < 0.7


def test_overlap_hides_gradient_exchange(make_plan: MakePlan, llama_7b: Architecture) -> None:
    hidden = predict(make_plan(llama_7b, 1, 4, 4096, dp=8))
    shown = predict(make_plan(llama_7b, 1, 4, 4096, dp=8, overlap=False))
    assert hidden.terms["dp_comm"] < 0.3 * shown.terms["dp_comm"]


def test_sharding_parameters_of_a_small_model_costs_time_each_micro_batch(make_plan: MakePlan) -> None:
    """1 B parameters, four ranks, 32 micro-batches of 2: replicated beats fully sharded."""
    one_b = Architecture("1b", "llama", 16, 2048, 16, 16, 128, 8192, 50304)
    steps = {
        zero: predict(make_plan(one_b, 2, 32, 2048, dp=4, zero=zero, gpu="A100-40GB-SXM", gradient_dtype="bf16"))
        for zero in (0, 1, 3)
    }
    assert all(step.fits for step in steps.values())
    assert min(steps[0].step_time_s, steps[1].step_time_s) < steps[3].step_time_s
    assert steps[3].terms["dp_comm"] > steps[1].terms["dp_comm"]


def test_hybrid_sharding_spares_the_network(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """Two nodes of four: shards inside a node, replicas across, against shards over all eight."""
    full = predict(make_plan(llama_7b, 1, 4, 2048, dp=8, zero=3, a_node=4))
    hybrid = predict(make_plan(llama_7b, 1, 4, 2048, dp=8, zero=3, a_node=4, shard_group=4))
    assert hybrid.terms["dp_comm"] < full.terms["dp_comm"]
    assert hybrid.worst_memory.total > full.worst_memory.total


def test_origins_say_what_was_measured(make_plan: MakePlan) -> None:
    plan = make_plan(TINY, 1, 4, 512, pp=2)
    assert "unit_times" not in predict(plan).origins
    assert predict(plan, same_times(plan)).origins["unit_times"] == "measured"
    larger = make_plan(TINY, 2, 4, 512, pp=2)
    assert predict(larger, same_times(plan)).origins["unit_times"] == "fitted"


class TestTimeline:
    """The predicted timeline of one step."""

    def test_spans_every_action_exchange_and_optimizer(self, make_plan: MakePlan) -> None:
        plan = make_plan(TINY, 1, 8, 512, dp=2, pp=4, zero=1)
        spans = predicted_timeline(plan)
        assert spans.mode == "predicted"
        compute = spans.action[spans.kind == Kind.COMPUTE]
        assert np.sum(compute == Action.FORWARD) == 4 * 8
        assert np.sum(compute == Action.BACKWARD) == 4 * 8
        assert np.sum(compute == Action.OPTIMIZER) == 4
        named = {spans.names[index] for index in spans.name[spans.kind == Kind.COMMUNICATION]}
        assert {"gradient exchange", "parameter gather"} <= named

    def test_ends_when_the_step_ends(self, make_plan: MakePlan) -> None:
        plan = make_plan(TINY, 1, 8, 512, dp=2, pp=4, zero=1)
        found = predict(plan)
        end = int(predicted_timeline(plan).end.max()) / 1e9
        assert end == pytest.approx(found.step_time_s, abs=2e-3)
        assert end <= found.step_time_s


def test_a_slow_network_between_nodes_shows_in_the_exchange(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 1, 1, 2048, dp=16, a_node=8)
    cluster = plan.setup.proposal.cluster
    slow = replace(cluster, inter=replace(cluster.inter, bytes_per_s=replace(cluster.inter.bytes_per_s, value=0.5e9)))
    setup = replace(plan.setup, proposal=replace(plan.setup.proposal, cluster=slow))
    assert predict(replace(plan, setup=setup)).terms["dp_comm"] > 5 * predict(plan).terms["dp_comm"] + 1


def test_a_measured_optimizer_costs_by_the_parameter(make_plan: MakePlan, llama_7b: Architecture) -> None:
    # 1 s for the 2 B parameters of a rank of the run: 6.74 B on one rank take 3.37 s, an eighth of them under ZeRO-1
    times = replace(same_times(make_plan(llama_7b, 1, 1, 512)), optimizer_s=1.0, optimizer_parameters=2e9)
    whole, sharded = (
        predict(make_plan(llama_7b, 1, 1, 512, dp=8, zero=zero), times).terms["optimizer"] for zero in (0, 1)
    )
    assert whole == pytest.approx(3.369, rel=1e-3)
    assert sharded == pytest.approx(whole / 8)
