"""Unit costs: rooflines that respect the hardware's limits, and measured times that replace them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.basics.errors import InputError
from meshwright.basics.figures import Constant
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.model.architecture import Architecture, LatentAttention
from meshwright.model.flops import unit_forward_flops
from meshwright.model.units import Unit, units_of
from meshwright.predictor.compute import UnitCost, unit_costs
from meshwright.predictor.kernels import filled, gemm_s, speed_of

MakePlan = Callable[..., Plan]
ATTN, FFN = "layers.3.attn", "layers.3.ffn"


def costs_of(plan: Plan, measured: MeasuredUnits | None = None) -> dict[str, UnitCost]:
    """Unit costs of a plan."""
    return unit_costs(plan.setup, plan.layout, plan.batch, measured)


def measured_at(plan: Plan, forward: float, backward: float, recompute: str = "none") -> MeasuredUnits:
    """Every unit measured with the same times at the plan's own micro-batch."""
    times = {unit.name: UnitTime(forward, backward, 8) for unit in units_of(plan.setup.proposal.arch)}
    return MeasuredUnits(times, plan.batch.micro_batch, plan.batch.seq_len, plan.layout.tp, recompute, "dilated")


def test_every_unit_has_a_cost_and_halves_add_up(make_plan: MakePlan, llama_7b: Architecture) -> None:
    costs = costs_of(make_plan(llama_7b, 2, 8, 4096, dp=8, recompute="selective"))
    assert list(costs) == [unit.name for unit in units_of(llama_7b)]
    for cost in costs.values():
        assert cost.forward_s > 0
        assert cost.backward_s == pytest.approx(cost.input_backward_s + cost.weight_backward_s)
        assert cost.backward_s > cost.recompute_s


def test_nothing_is_faster_than_the_peak(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 2, 8, 4096, dp=8)
    peak = plan.setup.proposal.cluster.device.peak_flops["bf16"].value
    for name, cost in costs_of(plan).items():
        unit = next(u for u in units_of(llama_7b) if u.name == name)
        flops = unit_forward_flops(llama_7b, unit, plan.batch.micro_tokens, 4096)
        assert cost.forward_s >= flops / peak
        assert cost.backward_s >= 2 * flops / peak


def test_a_large_layer_runs_at_half_to_three_quarters_of_the_peak(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plan = make_plan(llama_7b, 2, 8, 4096, dp=8)
    flops = unit_forward_flops(llama_7b, Unit(FFN, "ffn", 3), plan.batch.micro_tokens, 4096)
    assert 0.5 < flops / costs_of(plan)[FFN].forward_s / 312e12 < 0.76


def test_full_recompute_repeats_the_forward_of_layers_only(make_plan: MakePlan, llama_7b: Architecture) -> None:
    plain, full = (costs_of(make_plan(llama_7b, 1, 8, 2048, dp=8, recompute=mode)) for mode in ("none", "full"))
    for name in (ATTN, FFN):
        assert full[name].backward_s - plain[name].backward_s == pytest.approx(plain[name].forward_s)
    assert full["head"] == plain["head"]
    assert full["embed"].recompute_s == 0


def test_recompute_of_a_stages_first_layers_leaves_the_others(make_plan: MakePlan, llama_7b: Architecture) -> None:
    costs = costs_of(make_plan(llama_7b, 1, 8, 2048, pp=4, recompute="full", recompute_layers=2))
    again = {int(name.split(".")[1]) for name, cost in costs.items() if cost.recompute_s > 0}
    assert again == {0, 1, 8, 9, 16, 17, 24, 25}


def test_a_tensor_group_divides_work_but_not_launches(make_plan: MakePlan, llama_7b: Architecture) -> None:
    large = [costs_of(make_plan(llama_7b, 2, 8, 4096, tp=tp))[FFN].forward_s for tp in (1, 2, 4)]
    assert large[0] > large[1] > large[2]
    assert large[0] / large[1] == pytest.approx(2, rel=0.15)
    tiny = replace(llama_7b, hidden=256, ffn_hidden=512, head_dim=8)
    small = [costs_of(make_plan(tiny, 1, 8, 128, tp=tp))[FFN].forward_s for tp in (1, 4)]
    assert small[0] == pytest.approx(small[1], rel=0.01)


def test_small_work_waits_for_the_host(make_plan: MakePlan, llama_7b: Architecture) -> None:
    tiny = replace(llama_7b, hidden=256, ffn_hidden=512, head_dim=8)
    plan = make_plan(tiny, 1, 8, 128)
    cost = costs_of(plan)[FFN]
    assert cost.host_s > 0.4 * cost.total_s
    slower = replace(plan.setup.proposal.cluster.device, launch_s=Constant(50e-6, "guessed"))
    cluster = replace(plan.setup.proposal.cluster, device=slower)
    setup = replace(plan.setup, proposal=replace(plan.setup.proposal, cluster=cluster))
    assert costs_of(replace(plan, setup=setup))[FFN].forward_s > 5 * cost.forward_s


def test_tiles_waste_what_does_not_fill_a_wave(make_plan: MakePlan, llama_7b: Architecture) -> None:
    assert filled(128 * 108, 128, 108) > filled(128 * 109, 128, 108)
    assert filled(1, 1, 108) < 0.01
    speed = speed_of(make_plan(llama_7b, 1, 1, 128).setup.proposal.cluster.device, "bf16")
    whole, deep = gemm_s(speed, 8192, 8192, 64, 2), gemm_s(speed, 8192, 8192, 8192, 2)
    assert deep / whole < 8192 / 64  # a short inner dimension is less efficient


def test_a_precision_without_units_is_refused(make_plan: MakePlan, llama_7b: Architecture) -> None:
    with pytest.raises(InputError, match="fp8"):
        costs_of(make_plan(llama_7b, 1, 1, 128, precision="fp8"))


class TestMeasured:
    """Unit times of a run in place of the roofline."""

    def test_hold_as_they_are_under_the_same_conditions(self, make_plan: MakePlan, llama_7b: Architecture) -> None:
        plan = make_plan(llama_7b, 2, 4, 512)
        cost = costs_of(plan, measured_at(plan, 0.010, 0.024))[ATTN]
        assert (cost.forward_s, cost.backward_s, cost.recompute_s) == pytest.approx((0.010, 0.024, 0))

    def test_scale_with_the_micro_batch(self, make_plan: MakePlan, llama_7b: Architecture) -> None:
        measured = measured_at(make_plan(llama_7b, 2, 4, 512), 0.010, 0.024)
        cost = costs_of(make_plan(llama_7b, 4, 2, 512), measured)[FFN]
        assert (cost.forward_s, cost.backward_s) == pytest.approx((0.020, 0.048))

    def test_scale_with_the_tensor_degree(self, make_plan: MakePlan, llama_7b: Architecture) -> None:
        measured = measured_at(make_plan(llama_7b, 2, 4, 512), 0.010, 0.024)
        assert costs_of(make_plan(llama_7b, 2, 4, 512, tp=2), measured)[FFN].forward_s == pytest.approx(0.005)

    def test_dropping_full_recompute_saves_one_forward(self, make_plan: MakePlan, llama_7b: Architecture) -> None:
        plan = make_plan(llama_7b, 2, 4, 512, recompute="full")
        measured = measured_at(plan, 0.010, 0.030, recompute="full")
        without = costs_of(make_plan(llama_7b, 2, 4, 512), measured)
        assert without[ATTN].backward_s == pytest.approx(0.020)
        assert without["head"].backward_s == pytest.approx(0.030)  # the head is never recomputed
        kept = costs_of(plan, measured)[ATTN]
        assert (kept.backward_s, kept.recompute_s) == pytest.approx((0.030, 0.010))

    def test_dropping_full_recompute_saves_what_was_measured_of_it(
        self, make_plan: MakePlan, llama_7b: Architecture
    ) -> None:
        """A second forward finds warm caches: it may cost less than the first."""
        plan = make_plan(llama_7b, 2, 4, 512, recompute="full")
        measured = measured_at(plan, 0.010, 0.030, recompute="full")
        units = {name: replace(time, recompute_s=0.007) for name, time in measured.units.items()}
        measured = replace(measured, units=units)
        assert costs_of(make_plan(llama_7b, 2, 4, 512), measured)[ATTN].backward_s == pytest.approx(0.023)
        kept = costs_of(plan, measured)[ATTN]
        assert (kept.backward_s, kept.recompute_s) == pytest.approx((0.030, 0.007))

    def test_a_unit_that_was_not_measured_keeps_its_roofline(self, make_plan: MakePlan, llama_7b: Architecture) -> None:
        plan = make_plan(llama_7b, 2, 4, 512)
        measured = measured_at(plan, 0.010, 0.024)
        partly = replace(measured, units={ATTN: measured.units[ATTN]})
        assert costs_of(plan, partly)[FFN] == costs_of(plan)[FFN]


def test_each_variant_of_a_unit_has_its_own_cost(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """Dense layers of a model with experts, and layers with a short window."""
    mixed = replace(
        llama_7b, experts=8, active_experts=2, dense_layers=(0, 5), dense_ffn_hidden=2048, sliding_window=128,
        global_layers=(3, 7),
    )  # fmt: skip
    costs = costs_of(make_plan(mixed, 1, 8, 8192, dp=8))
    assert costs["layers.0.ffn"] == costs["layers.5.ffn"]
    assert costs["layers.0.ffn"].forward_s < costs["layers.1.ffn"].forward_s / 3
    assert costs["layers.3.attn"] == costs["layers.7.attn"]
    assert costs["layers.0.attn"].forward_s < costs["layers.3.attn"].forward_s


def test_latent_attention_is_counted_from_its_own_matrices(make_plan: MakePlan, llama_7b: Architecture) -> None:
    """The widths of DeepSeek-V3: both low-rank pairs, heads of 192 for scores and of 128 for values."""
    latent = LatentAttention(512, 128, 64, 128, 1536)
    deep = replace(llama_7b, hidden=7168, heads=128, kv_heads=128, head_dim=192, latent=latent)
    plan = make_plan(deep, 1, 8, 4096, dp=8)
    unit = Unit(ATTN, "attn", 3)
    matrices = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    flops = 2 * matrices + 2 * 2048 * 128 * (192 + 128)
    assert unit_forward_flops(deep, unit, 1, 4096) == flops
    seconds = costs_of(plan)[ATTN].forward_s
    assert 0.3 < 4096 * flops / seconds / 312e12 < 1
    assert seconds < costs_of(make_plan(replace(deep, latent=None), 1, 8, 4096, dp=8))[ATTN].forward_s


def test_uneven_experts_cost_what_the_fullest_rank_does(make_plan: MakePlan, llama_7b: Architecture) -> None:
    sparse = replace(llama_7b, experts=8, active_experts=2)

    def ffn(imbalance: float, ep: int) -> float:
        plan = make_plan(sparse, 1, 8, 4096, dp=8, ep=ep)
        setup = plan.setup
        training = replace(setup.proposal.training, expert_imbalance=imbalance)
        setup = replace(setup, proposal=replace(setup.proposal, training=training))
        return costs_of(replace(plan, setup=setup))[FFN].forward_s

    assert ffn(1.5, 1) == ffn(1.0, 1)  # one rank that holds all experts does all the work in either case
    assert ffn(1.5, 4) / ffn(1.0, 4) == pytest.approx(1.5, rel=0.05)
