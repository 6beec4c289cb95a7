"""The ranking: never worse than trying everything, and right about public cases."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.basics.errors import AnswerIsNo
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.files.setup import Setup
from meshwright.layout.degrees import SCHEDULES, Schedule
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import legal
from meshwright.layout.runners import runnable_by
from meshwright.layout.schedules import V_SHAPED
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of
from meshwright.planner.candidates import Bench
from meshwright.planner.rank import plan
from meshwright.planner.space import space
from meshwright.predictor.constants import RESOLUTION
from meshwright.predictor.step import predict

MakeJob = Callable[..., Setup]
SMALL = Architecture("small", "llama", 6, 1024, 8, 8, 128, 2816, 16000)


def exhaustive(job: Setup, measured: MeasuredUnits | None = None) -> tuple[float, int]:
    """The least predicted step time of every layout of the space that fits, each predicted on its own; their number."""
    bench, least, count = Bench(job, measured), float("inf"), 0
    for group in space(job).groups:
        for candidate in bench.fitted(group, group.zeros):
            exact = bench.exact(candidate)
            found = predict(exact, measured)
            count += 1
            assert exact.prediction is not None
            assert found.step_time_s == pytest.approx(exact.prediction.step_time_s, rel=1e-9)
            assert candidate.bound_s <= found.step_time_s * (1 + 1e-9)
            assert bench.floors.of_group(group) <= found.step_time_s * (1 + 1e-9)
            assert bench.floors.of_layout(group, candidate.layout.zero) <= candidate.bound_s
            if candidate.layout.stages == bench.stages(group):
                assert bench.floors.of_cut(group, candidate.layout.zero, candidate.layout.stages) <= candidate.bound_s
            assert bench.floors.memory(group, candidate.layout.zero) <= found.worst_memory.total * (1 + 1e-9) + 8
            if found.fits:
                least = min(least, found.step_time_s)
    return least, count


@pytest.mark.parametrize(
    ("memory_gib", "fixed"),
    [(39.0, {}), (4.5, {}), (3.0, {}), (39.0, {"pp": 4}), (5.0, {"tp": 2, "recompute": "full"})],
)
def test_equals_the_exhaustive_search(make_job: MakeJob, memory_gib: float, fixed: dict[str, object]) -> None:
    job = make_job(SMALL, gpus=4, batch=8, seq_len=1024, memory_gib=memory_gib, **fixed)
    least, count = exhaustive(job)
    found = plan(job)
    assert found.evaluated == count
    steps = [one.prediction.step_time_s for one in found.plans if one.prediction]
    assert min(steps) == pytest.approx(least, rel=1e-9)
    assert steps[0] <= least * (1 + RESOLUTION.value) * (1 + 1e-9)


def test_equals_the_exhaustive_search_with_measured_times(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=4, batch=8, seq_len=512, runner="meshwright", recipe={"precision": "bf16"})
    times = {unit.name: UnitTime(1e-3 * (1 + i % 3), 2e-3 * (1 + i % 3), 4) for i, unit in enumerate(units_of(SMALL))}
    measured = MeasuredUnits(times, 1, 512, 1, "none", "dilated", 1e-3)
    least, _ = exhaustive(job, measured)
    best = plan(job, measured=measured).plans
    assert min(one.prediction.step_time_s for one in best if one.prediction) == pytest.approx(least, rel=1e-9)


def test_plans_are_legal_fit_and_can_be_run(worked_example: Setup) -> None:
    found = plan(worked_example)
    assert len(found.plans) == len(found.why) == 5
    for one in found.plans:
        assert one.prediction is not None
        assert one.prediction.fits
        assert legal(proposal_of(worked_example.proposal, one.layout, one.batch))
        assert runnable_by(one.setup.proposal.arch, one.setup.proposal.training, one.layout)
        assert one.batch.micro_batch * one.batch.micro_batches * one.layout.dp == 256


def test_alternatives_differ_in_more_than_the_micro_batch(worked_example: Setup) -> None:
    kinds = {
        (one.layout.dp, one.layout.tp, one.layout.pp, one.layout.cp, one.layout.zero, one.layout.recompute)
        for one in plan(worked_example).plans
    }
    assert len(kinds) == 5
    assert len({kind[:4] for kind in kinds}) >= 3


def test_the_worked_example_needs_neither_tensor_nor_pipeline(worked_example: Setup) -> None:
    """The model fits: plain data parallelism with sharded optimizer states, no recompute, ranks first."""
    best = plan(worked_example).plans[0]
    assert (best.layout.dp, best.layout.tp, best.layout.pp, best.layout.cp) == (8, 1, 1, 1)
    assert best.layout.zero <= 1
    assert best.layout.recompute == "none"


def test_a_pipeline_that_is_not_needed_ranks_behind(make_job: MakeJob, neox_20b: Architecture) -> None:
    """20 B on 128 GPUs in nodes of eight, batch of 1024 sequences of 4096: without a pipeline, tensor groups inside a
    node."""
    best = plan(make_job(neox_20b, "A100-80GB-SXM", 128, batch=1024, seq_len=4096), top=1).plans[0]
    assert best.layout.pp == 1
    assert best.layout.tp <= 8


@pytest.mark.parametrize("m", [1, 8])
def test_a_pipeline_loses_at_equal_micro_batches(make_job: MakeJob, neox_20b: Architecture, m: int) -> None:
    """Tokens a second and GPU, tp = 2, each layout with m micro-batches of one sequence of 4096."""
    rates = []
    for pp in (1, 4):
        job = make_job(
            neox_20b, "A100-80GB-SXM", 128, batch=64 // pp * m, seq_len=4096, tp=2, pp=pp, cp=1, micro_batch=1,
            micro_batches=m, zero=1, schedule="1f1b",
        )  # fmt: skip
        found = plan(job, top=1).plans[0].prediction
        assert found is not None
        rates.append(found.tokens_per_s_per_gpu)
    assert rates[0] > 1.2 * rates[1]


@pytest.mark.parametrize(("m", "idle"), [(1, 0.75), (8, 3 / 11)])
def test_a_forced_pipeline_is_idle_as_its_micro_batches_say(
    make_job: MakeJob, neox_20b: Architecture, m: int, idle: float
) -> None:
    job = make_job(
        neox_20b, "A100-80GB-SXM", 128, batch=16 * m, tp=2, pp=4, cp=1, micro_batch=1, micro_batches=m, zero=1,
        schedule="1f1b",
    )  # fmt: skip
    found = plan(job, top=1).plans[0].prediction
    assert found is not None
    assert found.bubble_fraction == pytest.approx(idle, abs=0.03)
    share = found.terms["bubble"] / found.step_time_s
    assert share > 0.15


def test_a_model_that_fits_is_not_sharded(make_job: MakeJob) -> None:
    """1 B on four 40 GB cards, micro-batch 2, 32 micro-batches: replicated or ZeRO-1 before ZeRO-3."""
    one_b = Architecture("1b", "llama", 16, 2048, 16, 16, 128, 8192, 50304)
    job = make_job(one_b, gpus=4, batch=256, dp=4, micro_batch=2, recompute="none")
    order = [one.layout.zero for one in plan(job, top=20).plans]
    assert order[0] in (0, 1)
    assert set(order) == {0, 1, 2, 3}
    assert max(order.index(0), order.index(1)) < order.index(3)


def test_fixed_parts_stay_fixed(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=8, batch=32, tp=2, pp=2, schedule="gpipe", recompute="full", micro_batch=2, zero=0)
    for one in plan(job).plans:
        assert (one.layout.tp, one.layout.pp, one.layout.dp * one.layout.cp) == (2, 2, 2)
        assert (one.layout.schedule, one.layout.recompute, one.layout.zero) == ("gpipe", "full", 0)
        assert one.batch.micro_batch == 2


def test_fixed_stages_and_placement_stay_fixed(make_job: MakeJob) -> None:
    names = [unit.name for unit in units_of(SMALL)]
    stages = (tuple(names[:2]), tuple(names[2:8]), tuple(names[8:]))
    job = make_job(
        SMALL, gpus=2, batch=8, pp=2, stages=stages, placement=(0, 1, 0), schedule="1f1b", runner="meshwright"
    )
    best = plan(job, top=1).plans[0]
    assert best.layout.stages == stages
    assert best.layout.placement == (0, 1, 0)


def test_only_our_trainer_cuts_inside_a_layer(make_job: MakeJob) -> None:
    for runner in ("megatron", "any"):
        best = plan(make_job(SMALL, gpus=4, batch=8, pp=4, runner=runner), top=1).plans[0]
        assert all(not stage[0].endswith(".ffn") for stage in best.layout.stages)


def test_expert_models_are_spread(make_job: MakeJob) -> None:
    moe = Architecture("moe", "mixtral", 8, 2048, 16, 8, 128, 4096, 32000, experts=8, active_experts=2)
    found = plan(make_job(moe, "H100-SXM", batch=64))
    assert found.plans[0].prediction is not None
    assert any(one.layout.ep > 1 for one in plan(make_job(moe, "H100-SXM", batch=64, ep=4)).plans)


class TestWhenTheAnswerIsNo:
    """Nothing fits, or nothing can run."""

    def test_says_what_would_fit(self, make_job: MakeJob) -> None:
        arch = Architecture("llama-13b", "llama", 40, 5120, 40, 40, 128, 13824, 32000)
        with pytest.raises(AnswerIsNo) as no:
            plan(make_job(arch, "A100-40GB-SXM", gpus=4, batch=64))
        assert "nothing fits in 39.39 GiB" in no.value.message
        assert "devices with" in no.value.message
        assert "8 devices of this kind" in no.value.message

    def test_names_the_fixed_choice_that_stands_in_the_way(self, make_job: MakeJob) -> None:
        arch = Architecture("llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)
        with pytest.raises(AnswerIsNo, match="zero left free"):
            plan(make_job(arch, "A100-40GB-SXM", gpus=8, batch=64, zero=0, tp=1, pp=1))

    def test_names_the_framework_that_could(self, make_job: MakeJob) -> None:
        with pytest.raises(AnswerIsNo, match=r"runnable_by = .*megatron"):
            plan(make_job(SMALL, batch=8, runner="deepspeed", cp=8))

    def test_names_the_contradiction(self, worked_example: Setup) -> None:
        wanted = replace(worked_example.proposal.wanted, dp=2, tp=2, pp=4)
        with pytest.raises(AnswerIsNo, match="= 16 GPUs, not 8"):
            plan(replace(worked_example, proposal=replace(worked_example.proposal, wanted=wanted)))

    def test_names_the_rule(self, make_job: MakeJob) -> None:
        with pytest.raises(AnswerIsNo, match="heads"):
            plan(make_job(replace(SMALL, heads=6, kv_heads=6), gpus=8, batch=8, tp=4))


def test_rejections_name_degrees_and_memory(worked_example: Setup) -> None:
    rejected = plan(worked_example).rejected
    assert any("dp 8" in one.family and "GiB" in one.reason and one.count > 0 for one in rejected)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_can_be_fixed_with_everything_else_free(make_job: MakeJob, schedule: Schedule) -> None:
    best = plan(make_job(SMALL, gpus=4, batch=8, seq_len=1024, schedule=schedule)).plans[0]
    assert best.layout.schedule == schedule
    assert best.layout.pp > 1 or schedule not in V_SHAPED  # a V needs a pipeline to fold


class TestHowSurelyItFits:
    """`[search] risk`: where some plan is less likely to run out, no plan that is more likely ranks at all."""

    @pytest.mark.parametrize("risk", [0.02, 0.1, 0.3])
    def test_no_plan_is_riskier_than_allowed(self, make_job: MakeJob, neox_20b: Architecture, risk: float) -> None:
        job = replace(make_job(neox_20b, "A100-80GB-SXM", 128, batch=1024, seq_len=4096), risk=risk)
        plans = plan(job).plans
        for one in plans:
            assert one.prediction is not None
            assert max(rank.p_oom or 0.0 for rank in one.prediction.memory) <= risk
            assert one.prediction.memory_limit_bytes == job.proposal.cluster.memory_bytes
            assert one.setup.proposal.cluster == job.proposal.cluster

    def test_less_risk_is_never_faster(self, make_job: MakeJob, neox_20b: Architecture) -> None:
        job = make_job(neox_20b, "A100-80GB-SXM", 128, batch=1024, seq_len=4096)
        found = [plan(replace(job, risk=risk)).plans for risk in (0.5, 0.1, 0.01)]
        fastest = [min(one.prediction.step_time_s for one in plans if one.prediction) for plans in found]
        assert fastest == sorted(fastest)

    def test_where_nothing_is_sure_the_likely_ranks(self, make_job: MakeJob, neox_20b: Architecture) -> None:
        sure = make_job(neox_20b, "A100-80GB-SXM", 128, batch=1024, seq_len=4096, dp=128, tp=1, pp=1, cp=1,
                        zero=3, micro_batch=2, recompute="none")  # fmt: skip
        (only,) = plan(replace(sure, risk=0.01), top=1).plans
        assert only.prediction is not None
        assert 0.01 < max(rank.p_oom or 0.0 for rank in only.prediction.memory) < 0.5
