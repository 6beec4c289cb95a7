"""What the loop may change, and that it changes one thing at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.files.setup import Tuning
from meshwright.loop.candidates import candidates, may_change, single_changes
from meshwright.loop.rebalance import moves, rebalanced
from meshwright.model.units import units_of

UNEVEN = Path(__file__).parents[2] / "examples/laptop/uneven.toml"


@pytest.fixture
def plan() -> Plan:
    return read_plan(UNEVEN)


def even_costs(plan: Plan, recompute: str = "none") -> MeasuredUnits:
    """Each half layer costs 5 ms forward and 10 ms backward, the ends nothing to speak of."""
    ends = {"embed": UnitTime(1e-6, 1e-6, 8), "head": UnitTime(1e-6, 1e-6, 8)}
    half = UnitTime(0.005, 0.015 if recompute == "full" else 0.010, 8)
    units = {unit.name: ends.get(unit.name, half) for unit in units_of(plan.setup.proposal.arch)}
    return MeasuredUnits(units, plan.batch.micro_batch, plan.batch.seq_len, plan.layout.tp, recompute, "dilated")


def test_layers_move_until_every_stage_has_two(plan: Plan) -> None:
    result = rebalanced(plan, even_costs(plan))
    layers = [sum(unit.endswith(".ffn") for unit in stage) for stage in result.after.layout.stages]
    assert layers == [2, 2, 2, 2]
    # 8 micro-batches of 15 ms a half layer: 8 * 5 + 3 layers' fill and drain against (8 + 3) * 2 layers of 30 ms.
    assert result.after.prediction is not None
    assert result.after.prediction.step_time_s == pytest.approx(0.66, rel=0.05)
    assert result.predicted_gain == pytest.approx(1 - 0.66 / 1.29, abs=0.03)
    assert any(move.startswith("stage 3 -> stage 2") for move in result.moves)


def test_chunks_of_one_rank_are_balanced_together(plan: Plan) -> None:
    # Stages 0 and 2 lie on one rank. Ten half layers of 15 ms and six of three times that: 28 · 15 ms, half of it at
    # best on each of two ranks, which four stages of the least slowest one do not give.
    costs = even_costs(plan)
    heavy = {f"layers.{layer}.{half}" for layer in (5, 6, 7) for half in ("attn", "ffn")}
    units = {
        name: UnitTime(t.forward_s * 3, t.backward_s * 3, 8) if name in heavy else t for name, t in costs.units.items()
    }
    names = [unit.name for unit in units_of(plan.setup.proposal.arch)]
    stages = (tuple(names[:2]), tuple(names[2:4]), tuple(names[4:6]), tuple(names[6:]))
    layout = replace(
        plan.layout, pp=2, dp=2 * plan.layout.dp, vpp=2, schedule="interleaved", stages=stages, placement=(0, 1, 0, 1)
    )
    batch = replace(plan.batch, micro_batches=plan.batch.micro_batches // 2)
    folded = replace(plan, layout=layout, batch=batch)
    after = rebalanced(folded, replace(costs, units=units)).after.layout
    seconds = {name: t.forward_s + t.backward_s for name, t in units.items()}
    loads = [sum(seconds[unit] for stage in after.stages_of(rank) for unit in after.stages[stage]) for rank in (0, 1)]
    assert max(loads) == pytest.approx(14 * 0.015, rel=0.01)


def test_a_balanced_plan_is_left_alone(plan: Plan) -> None:
    once = rebalanced(plan, even_costs(plan)).after
    again = rebalanced(once, even_costs(plan))
    assert again.after.layout.stages == once.layout.stages
    assert again.predicted_gain == pytest.approx(0.0)
    assert moves(once, again.after) == ()


def test_only_free_or_named_keys_may_change(plan: Plan) -> None:
    asked = plan.setup
    assert may_change(asked, {"layout.stages": ()})  # named in [tune] change
    assert not may_change(asked, {"layout.recompute": "full"})  # given by the job
    assert may_change(asked, {"layout.bucket_mib": 50.0})  # not given
    assert not may_change(asked, {"layout.stages": (), "layout.tp": 2})
    assert not may_change(replace(asked, tune=Tuning()), {"layout.stages": ()})


def test_candidates_come_best_first_each_with_its_own_prediction(plan: Plan) -> None:
    asked = replace(plan.setup, tune=Tuning(change=("stages", "recompute")))
    slow = replace(plan, layout=replace(plan.layout, recompute="full"))
    found = candidates(asked, slow, even_costs(plan, "full"), ())
    assert {tuple(candidate.change) for candidate in found} >= {("layout.stages",), ("layout.recompute",)}
    gains = [candidate.predicted_gain for candidate in found]
    assert gains == sorted(gains, reverse=True)
    by_key = {tuple(c.change): c for c in found}
    # Full recompute adds one forward to a forward and a double backward: a quarter of the work.
    assert by_key[("layout.recompute",)].predicted_gain == pytest.approx(0.25, abs=0.02)
    assert by_key[("layout.recompute",)].plan.layout.stages == slow.layout.stages


def test_a_joint_change_is_cut_into_single_ones() -> None:
    joint = {"layout.recompute": "none", "layout.stages": (("a",),), "layout.schedule": "gpipe", "batch.micro_batch": 2}
    assert single_changes(joint) == (
        {"layout.recompute": "none"},
        {"layout.schedule": "gpipe", "layout.stages": (("a",),)},
        {"batch.micro_batch": 2},
    )
