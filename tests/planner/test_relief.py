"""What single change would make a plan fit, and by how much: tried, not guessed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.plan import Plan
from meshwright.layout.rules import legal
from meshwright.planner.changes import Change, combined, single_changes
from meshwright.planner.relief import Relief, held, reliefs
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.step import predict

from .memory_plans import pipeline, seven_b

ORDER = ("fits", "tight", "does not fit")


def by_keys(found: tuple[Relief, ...], *keys: str) -> list[Relief]:
    return [one for one in found if set(keys) <= set(one.change.keys)]


def test_every_figure_is_that_of_the_changed_plan() -> None:
    plan = seven_b()
    found = reliefs(plan)
    assert len(found) > 4
    now = predict(plan)
    for one in found:
        ranks = rank_memory(one.change.plan.setup, one.change.plan.layout, one.change.plan.batch)
        assert one.after.fullest.total == max(rank.total for rank in ranks)
        assert one.saved == now.worst_memory.total - one.after.fullest.total > 0
        assert legal(one.change.plan.setup.proposal)
        if one.step_time is not None:
            assert one.step_time == pytest.approx(predict(one.change.plan).step_time_s / now.step_time_s - 1)


def test_what_fits_comes_before_what_is_tight_before_what_does_not_fit() -> None:
    for plan in (seven_b(), pipeline(4, memory_gib=1), pipeline(4, micro_batch=8)):
        reached = [ORDER.index(one.after.verdict) for one in reliefs(plan) if " + " not in one.change.family]
        assert reached == sorted(reached)


def test_among_those_that_fit_the_cheapest_in_step_time_comes_first() -> None:
    fits = [one for one in reliefs(seven_b()) if one.after.verdict == "fits" and one.wanted_runner]
    costs = [one.step_time for one in fits if one.step_time is not None]
    assert len(costs) > 1
    assert costs == sorted(costs)


def test_the_mildest_change_that_fits_is_named_not_the_strongest() -> None:
    """One layer less under full recompute must not fit surely any more, and a larger micro-batch neither."""
    plan = seven_b()
    (layers,) = (one for one in by_keys(reliefs(plan), "layout.recompute_layers") if one.after.verdict == "fits")
    k = layers.change.plan.layout.recompute_layers
    assert k is not None
    fewer = replace(layers.change.plan, layout=replace(layers.change.plan.layout, recompute_layers=k - 1))
    assert held(fewer).verdict != "fits"


def test_dominant_logits_are_chunked_or_divided_before_stages_are_added() -> None:
    """Case B6: 65,536 tokens of 128,000 scores are 31 GiB in fp32 once, and again for the gradient. Two layers weigh
    nothing beside them."""
    plan = seven_b(
        layers=2, hidden=1024, heads=8, kv_heads=8, ffn_hidden=2816, vocab=128_000, seq_len=65_536, micro_batch=1,
        dp=4, tp=2, zero=1, vocab_parallel=False, recompute="full", runnable_by="any",
    )  # fmt: skip
    now = held(plan)
    assert now.verdict == "does not fit"
    assert now.fullest.parts["logits"] > now.fullest.total / 2
    families = [one.change.family for one in reliefs(plan)]
    assert families.index("loss") < min(
        (families.index(f) for f in ("pp", "stages") if f in families), default=len(families)
    )
    loss = [one for one in reliefs(plan) if one.change.family == "loss"]
    assert {key for one in loss for key in one.change.keys} & {"layout.loss_chunk", "layout.vocab_parallel"}
    assert loss[0].after.verdict == "fits"


def test_the_best_pair_where_no_single_change_is_enough() -> None:
    plan = seven_b(memory_gib=40)
    found = reliefs(plan)
    assert all(one.after.verdict == "does not fit" for one in found[1:])
    assert " + " in found[0].change.family
    assert found[0].after.verdict != "does not fit"
    assert found[0].after.fullest.total < min(one.after.fullest.total for one in found[1:])


def test_a_plan_that_fits_is_told_what_takes_less_the_most_first() -> None:
    plan = seven_b(recompute="full")
    found = reliefs(plan)
    assert held(plan).verdict == "fits"
    sizes = [one.after.fullest.total for one in found]
    assert 0 < len(found) <= 5
    assert sizes == sorted(sizes)


def test_what_the_named_framework_cannot_run_is_marked() -> None:
    """Megatron has no 8-bit optimizer; DeepSpeed does."""
    found = reliefs(seven_b(memory_gib=75), most=20)
    eight = by_keys(found, "training.optimizer")
    assert eight
    for one in eight:
        assert not one.wanted_runner
        assert "megatron" not in one.runners
        assert "deepspeed" in one.runners


def changes_of(plan: Plan) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for change in single_changes(plan):
        found.setdefault(change.family, []).append(change)
    return found


def test_every_kind_of_change_is_tried() -> None:
    plain = changes_of(seven_b())
    assert {"loss", "recompute", "first layers", "zero", "micro-batch", "tp", "cp", "pp", "gradient dtype"} <= set(
        plain
    )
    assert {"optimizer", "offload"} <= set(plain)
    assert [change.plan.layout.zero for change in plain["zero"]] == [2, 3]
    assert plain["tp"][0].plan.batch.micro_batches == 2 * seven_b().batch.micro_batches
    deep = changes_of(pipeline(4, schedule="gpipe"))
    assert deep["schedule"][0].plan.layout.schedule == "1f1b"
    assert "stages" in deep
    split = changes_of(seven_b(dp=4, tp=2, zero=3, shard_group=2, vocab_parallel=False, gradient_exchange="step"))
    assert {"sequence parallelism", "shard group", "exchange"} <= set(split)
    assert any("layout.vocab_parallel" in change.keys for change in split["loss"])


def test_labels_are_what_set_takes() -> None:
    labels = [change.label for change in single_changes(seven_b())]
    assert "layout.recompute = full" in labels
    assert "layout.tp = 2, layout.dp = 4" in labels
    assert not any("placement" in label or "True" in label for label in labels)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([2, 4, 8, 16]), st.sampled_from([1, 2, 8]), st.sampled_from(["1f1b", "gpipe"]),
    st.sampled_from(["none", "full"]), st.data(),
)  # fmt: skip
def test_changes_are_legal_and_pairs_carry_both(
    stages: int, micro: int, schedule: str, recompute: str, data: st.DataObject
) -> None:
    plan = pipeline(stages, micro_batch=micro, schedule=schedule, recompute=recompute)
    found = list(single_changes(plan))
    units = sorted(name for stage in plan.layout.stages for name in stage)
    for change in found:
        assert legal(change.plan.setup.proposal)
        assert sorted(name for stage in change.plan.layout.stages for name in stage) == units
        assert change.plan.batch.global_batch == plan.batch.global_batch
    first, second = data.draw(st.sampled_from(found)), data.draw(st.sampled_from(found))
    both = combined(plan, first, second)
    if both is not None:
        assert dict(both.keys) == {**first.keys, **second.keys}
        assert set(first.keys) & set(second.keys) == set()
