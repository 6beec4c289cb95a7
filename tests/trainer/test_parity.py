"""Layouts train as one process does: real gloo processes, fp32, losses, norms and weights compared."""

import math

import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.trainer.courses import Course, Difference
from meshwright.trainer.parity import compare, one_process, parity, synthetic_tokens, train_all
from meshwright.trainer.pool import Pool

from .plans import TINY, cut, plan, variant

HALVES = cut(TINY, 5, 5)
FOUR = cut(TINY, 3, 2, 2, 3)
TURNS = cut(TINY, 2, 1, 1, 1, 1, 1, 1, 1, 1)  # embedding and attention | feed-forward | attention | ... | head
ROUND, VEE = (0, 1, 0, 1), (0, 1, 1, 0)
TIED = variant(tied=True)
FULL_HOUSE = variant(tied=True, qk_norm=True, qkv_bias=True, attention_out_bias=True, ffn_bias=True, vocab=255)

ONE_RANK = [
    plan("recompute", recompute="full"),
    plan("recompute of two layers", recompute="full", recompute_layers=2),
    plan("selective recompute", recompute="selective"),
    plan("other micro-batch", micro_batch=1),
]
TWO_RANKS = [
    plan("dp", dp=2),
    plan("dp in small buckets", dp=2, bucket_mib=0.05),
    plan("dp after the backward", dp=2, bucket_mib=0.05, overlap=False),
    plan("tp with two kv heads", tp=2),
    plan("sp", tp=2, sp=True),
    plan("1f1b", stages=HALVES, pp=2),
    plan("gpipe", stages=HALVES, pp=2, schedule="gpipe"),
    plan("cut inside a layer", stages=cut(TINY, 4, 6), pp=2),
    plan("uneven", stages=cut(TINY, 8, 2), pp=2),
    plan("one micro-batch", stages=HALVES, pp=2, micro_batch=16),
    plan("interleaved", stages=FOUR, placement=ROUND, pp=2, vpp=2, schedule="interleaved"),
    plan("looped-bfs", stages=FOUR, placement=ROUND, pp=2, vpp=2, schedule="looped-bfs"),
    plan("zb-h1", stages=HALVES, pp=2, schedule="zb-h1"),
    plan("interleaved zero bubble", stages=FOUR, placement=ROUND, pp=2, vpp=2, schedule="zb-h1"),
    plan("zbv", stages=FOUR, placement=VEE, pp=2, vpp=2, schedule="zbv"),
    plan("zbv with recompute", stages=FOUR, placement=VEE, pp=2, vpp=2, schedule="zbv", recompute="full"),
    plan("zbv with selective recompute", arch=TIED, stages=FOUR, placement=VEE, pp=2, vpp=2, schedule="zbv",
         recompute="selective"),
    plan("sp with selective recompute", arch=FULL_HOUSE, tp=2, sp=True, recompute="selective"),
    plan("dualpipev", stages=FOUR, placement=VEE, pp=2, vpp=2, schedule="dualpipev"),
    plan("attention and feed-forward in turns", stages=TURNS, placement=(0, 1) * 4 + (0,), pp=2, vpp=4),
    plan("tied", arch=TIED, stages=HALVES, pp=2),
    plan("tied, tp", arch=TIED, tp=2),
    plan("tied in a V", arch=TIED, stages=FOUR, placement=VEE, pp=2, vpp=2, schedule="zbv"),
    plan("odd vocabulary, biases, head norms", arch=FULL_HOUSE, tp=2, sp=True),
    plan("more vocabulary than layers", arch=variant(layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, vocab=5000),
         stages=(("embed",), ("layers.0.attn", "layers.0.ffn", "layers.1.attn", "layers.1.ffn", "head")), pp=2),
]  # fmt: skip
FOUR_RANKS = [
    plan("p 4, m 1", stages=FOUR, pp=4, micro_batch=16),
    plan("p 4, m 2", stages=FOUR, pp=4, micro_batch=8),
    plan("p 4, m 2, gpipe", stages=FOUR, pp=4, micro_batch=8, schedule="gpipe"),
    plan("five layers on two", arch=variant(layers=5), stages=cut(variant(layers=5), 7, 5), pp=2, tp=2),
    plan("tied across dp and pp", arch=TIED, stages=HALVES, pp=2, dp=2, micro_batch=2, bucket_mib=0.05),
    plan(
        "zbv across dp",
        arch=TIED,
        stages=FOUR,
        placement=VEE,
        pp=2,
        vpp=2,
        schedule="zbv",
        dp=2,
        micro_batch=2,
        bucket_mib=0.05,
    ),
]
EIGHT_RANKS = [
    plan("proof", stages=HALVES, dp=2, tp=2, pp=2, micro_batch=2, recompute="full", training={"clip": 0.5}),
    plan("ZeRO-3 on eight", stages=HALVES, dp=2, tp=2, pp=2, micro_batch=2, zero=3, sp=True, recompute="full"),
    plan("all at once", arch=FULL_HOUSE, stages=HALVES, dp=2, tp=2, pp=2, micro_batch=2, sp=True,
         training={"lr_schedule": "cosine", "steps": 10}),
]  # fmt: skip


IN_TURNS = {"stages": FOUR, "pp": 2, "vpp": 2, "dp": 2, "micro_batch": 2, "bucket_mib": 0.05}
SHARED_STATES = [  # beside what the grid covers
    plan(f"ZeRO-{zero}, {name}", zero=zero, **{"arch": TINY, **layout})
    for zero in (1, 2, 3)
    for name, layout in {
        "4 replicas, recompute": {"dp": 4, "micro_batch": 1, "recompute": "full"},
        "small buckets": {"dp": 2, "bucket_mib": 0.05},
        "gradients once a step": {"dp": 2, "micro_batch": 2, "gradient_exchange": "step"},
        "rows that do not divide": {"arch": variant(hidden=60, heads=2, head_dim=30, vocab=251), "dp": 4},
        "tp": {"arch": FULL_HOUSE, "tp": 2, "dp": 2, "sp": True},
        "tied over stages": {"arch": TIED, "stages": cut(TINY, 4, 6), "pp": 2, "dp": 2, "micro_batch": 2},
        "tied in a V": {**IN_TURNS, "arch": TIED, "placement": VEE, "schedule": "zbv"},
        "1f1b in a V, tied": {**IN_TURNS, "arch": TIED, "placement": VEE},
    }.items()
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plans", "steps"), [(ONE_RANK, 5), (TWO_RANKS[:12], 5), (TWO_RANKS[12:], 5), (FOUR_RANKS, 5), (EIGHT_RANKS, 10),
                         (SHARED_STATES, 3)],
    ids=["1 rank", "2 ranks", "2 ranks, more", "4 ranks", "8 ranks", "shared states"],
)  # fmt: skip
def test_layouts_train_as_one_process(plans: list, steps: int, pool: Pool) -> None:
    found = parity(plans, steps=steps, pool=pool)
    assert found.first_difference is None
    assert found.equal
    assert [row.ranks for row in found.table] == [p.layout.world for p in plans]
    for row in found.table:
        assert row.losses[-1] < row.losses[0] - 0.003  # it trains: a frozen model would be equal, too


@pytest.mark.slow
def test_bf16_stays_near_fp32(pool: Pool) -> None:
    """Case E13: about 1e-3 relative at the first step, whatever the layout."""
    bf16 = {"precision": "bf16"}
    plans = [plan(), plan(training=bf16), plan(stages=HALVES, pp=2, training=bf16), plan(tp=2, training=bf16)]
    exact, *rest = train_all(plans, 3, 60.0, pool=pool)
    for course in rest:
        assert course.losses[0] != exact.losses[0]
        assert math.isclose(course.losses[0], exact.losses[0], rel_tol=1e-3)
        assert math.isclose(course.grad_norms[0], exact.grad_norms[0], rel_tol=3e-2)


@pytest.mark.slow
def test_another_seed_is_told_apart_by_its_initial_weights(pool: Pool) -> None:
    same, other = train_all([plan(), plan(training={"seed": 1})], 2, 60.0, pool=pool)
    assert "initial weights" in str(compare(same, other, 1e-5)[1])


@pytest.mark.slow
def test_ranks_that_sit_out_a_case_do_not_time_out(pool: Pool) -> None:
    long = plan("long", seq_len=256, micro_batch=16, global_batch=64)  # a step outlasts the timeout of its neighbours
    courses = train_all([long, plan(dp=2)], 12, 3.0, pool=pool)
    assert [len(course.losses) for course in courses] == [12, 12]


@pytest.mark.slow
def test_a_failing_rank_is_named() -> None:
    unknown = plan(arch=variant(family="gemma2"), stages=HALVES, pp=2)
    with pytest.raises(RunFailed, match=r"^rank [01]: InputError: .*a gemma2 model is built from its config\.json"):
        train_all([unknown], 1, 10.0)


def course(**changes: object) -> Course:
    values = {
        "losses": (5.0, 4.0), "grad_norms": (1.0, 2.0), "weights_before": 3.0, "weights_after": 3.5, "drifted": (),
    }  # fmt: skip
    return Course(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"losses": (5.0, 4.0 + 3e-5)}, None),  # 7.5e-6 of it
        ({"losses": (5.0 + 1e-5, 4.0)}, "loss of step 1"),  # 2e-6: before an update there is no excuse
        ({"losses": (5.1, 4.0), "initial": ("lm_head.weight",)}, "lm_head.weight are not equal to the bit"),
        ({"grad_norms": (1.1, 2.0), "gradients": (Difference("q", 1.1e-5),)}, "first gradient of q"),
        ({"gradients": (Difference("q", 0.9e-5),), "weights": (Difference("k", 0.9e-3),)}, None),
        ({"weights_after": 3.6, "weights": (Difference("k", math.inf),)}, "final weights of k"),
        ({"losses": (5.0, 4.001), "grad_norms": (1.09, 2.0)}, "gradient norm of step 1"),
        ({"losses": (5.0, math.nan)}, "loss of step 2"),
        ({"weights_before": 3.1}, "initial weights"),
        ({"weights_after": 3.6}, "final weights"),
        ({"drifted": ("model.norm.weight",)}, "model.norm.weight"),
    ],
)
def test_first_difference(changes: dict, said: str | None) -> None:
    difference = compare(course(), course(**changes), 1e-5)[1]
    assert (difference is None) == (said is None)
    assert said is None or said in str(difference)


def test_reference_has_the_same_batch_on_one_rank() -> None:
    reference = one_process(EIGHT_RANKS[0])
    assert reference.layout.world == 1
    assert reference.batch.micro_batches == 8
    assert reference.batch.global_batch == 16


def test_synthetic_tokens_can_be_learned() -> None:
    tokens = synthetic_tokens(100, 4000, seed=0).astype(int)
    share = ((3 * tokens[:-1] + 7) % 100 == tokens[1:]).mean()
    assert 0.7 < share < 0.8


def test_what_the_trainer_cannot_run_is_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"layout\.cp"):
        parity([plan(cp=2)])
