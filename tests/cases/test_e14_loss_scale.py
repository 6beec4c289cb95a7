"""Case E14: when fp16 overflows all ranks skip alike, few skips are harmless, and a falling scale ends the run."""

import pytest
from tests.trainer.plans import TINY, cut, plan

from meshwright.basics.errors import RunFailed
from meshwright.model.training import Training
from meshwright.trainer.loss_scale import LossScale, loss_scale, verdict
from meshwright.trainer.pool import Job, Pool

LAST = "model.layers.3.mlp.down_proj.weight"
HALVES = {"stages": cut(TINY, 5, 5), "pp": 2}


def test_e14_sixteen_halvings_lead_to_the_floor() -> None:
    scale = loss_scale(Training(precision="fp16"))
    assert scale.value == 65_536
    for step in range(220, 236):
        scale.overflowed(step, ["layers.3.ffn", "head"])
    assert scale.value == 1
    with pytest.raises(
        RunFailed, match=r"^step 236: .*smallest loss scale, 1 .*began with step 220, in layers.3.ffn, "
    ):
        scale.overflowed(236)


def test_e14_a_larger_start_only_begins_earlier() -> None:
    scale = LossScale(active=True, fixed=False, value=2.0**32)
    for step in range(1, 20):
        scale.overflowed(step)
    with pytest.raises(RunFailed, match=r"^step 20: .*20 steps in a row \(loss scale 8192\).*step 1, .*bf16"):
        scale.overflowed(20)


def test_e14_the_scale_grows_again_and_a_fixed_one_stays() -> None:
    scale = loss_scale(Training(precision="fp16"))
    scale.overflowed(1)
    for _ in range(1999):
        scale.passed()
    assert scale.value == 2.0**15
    scale.passed()
    assert (scale.value, scale.good, scale.skipped) == (2.0**16, 0, 1)
    fixed = loss_scale(Training(precision="fp16", loss_scale=128.0))
    fixed.overflowed(1)
    assert fixed.value == 128
    other = loss_scale(Training(precision="fp16"))
    other.restore(scale.numbers())
    assert other.numbers() == scale.numbers()
    assert loss_scale(Training(precision="bf16")).value == 1


def test_e14_two_patterns_two_verdicts() -> None:
    early = [(step, 2.0 ** (17 - step)) for step in range(1, 7)] + [(500, 1024.0), (501, 512.0)]
    assert verdict(early, 1000).startswith("harmless: 8 of 1000 steps")
    falling = [(220 + index, 2.0 ** (16 - index)) for index in range(17)]
    assert verdict(falling, 240).startswith("diverging: the loss scale fell to 1, 17 steps in a row")
    assert verdict([], 10).startswith("none")
    assert verdict(early[:6], 6).startswith("unsettled: the last 6 of 6 steps")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [HALVES, {"dp": 2, "zero": 2}, {"tp": 2}], ids=["pp", "ZeRO-2", "tp"])
def test_e14_all_ranks_skip_together_and_the_schedule_waits(layout: dict, pool: Pool) -> None:
    pytest.importorskip("torch", reason="training needs meshwright[train]")
    recipe = {"precision": "fp16", "lr_schedule": "linear", "warmup": 0, "steps": 8}
    given = plan(micro_batch=4, training=recipe, **layout)

    def train(bad: tuple[int, ...]) -> list:
        return pool.run(Job("tests.trainer.overflowing:train", (given, 6, bad, LAST), 2, 20.0))

    clean, spoilt = train(()), train((1, 2))
    for (ours, norms), (theirs, _) in zip(spoilt, clean, strict=True):
        assert [step.skipped for step in ours] == [False, True, True, False, False, False]
        assert [step.loss_scale for step in ours] == [2.0**16, 2.0**16, 2.0**15, *[2.0**14] * 3]
        assert norms[0] == norms[1] == norms[2] != norms[3]
        assert [step.lr for step in ours[3:]] == [step.lr for step in theirs[1:4]]  # two updates late
        assert [step.loss for step in ours[3:]] == pytest.approx([step.loss for step in theirs[1:4]], rel=1e-3)


@pytest.mark.slow
def test_e14_the_unit_that_overflows_is_named(pool: Pool) -> None:
    pytest.importorskip("torch", reason="training needs meshwright[train]")
    given = plan(training={"precision": "fp16", "loss_scale": 1024.0}, **HALVES)
    with pytest.raises(RunFailed, match=r"step 20: .*20 steps in a row .*began with step 1, in layers\.3\.ffn\. "):
        pool.run(Job("tests.trainer.overflowing:train", (given, 30, tuple(range(30)), LAST), 2, 20.0))
