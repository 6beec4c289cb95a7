"""Cases A8, D1 and D6 on real ranks: few micro-batches end, gradients travel once a step, buckets change nothing."""

import time

import pytest
from tests.trainer.plans import TINY, cut, plan

from meshwright.model.parameters import total_parameters
from meshwright.trainer.parity import compare, parity, train_all
from meshwright.trainer.pool import Job, Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_a8_fewer_micro_batches_than_stages_end(schedule: str, pool: Pool) -> None:
    four = {"stages": cut(TINY, 3, 2, 2, 3), "pp": 4, "schedule": schedule}
    begun = time.monotonic()
    found = parity([plan(micro_batch=16 // m, **four) for m in (1, 2)], steps=2, pool=pool)
    assert found.equal, found.first_difference
    assert time.monotonic() - begun < 60  # it ends: a hang would wait for its peers' limit of 60 s


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("zero", [0, 1])
def test_d1_each_bucket_travels_once_a_step(zero: int, overlap: bool, pool: Pool) -> None:
    """2 ranks, m = 4; the reference exchanges 4 times as often."""
    given = plan(dp=2, micro_batch=2, bucket_mib=0.1, overlap=overlap, zero=zero)
    assert given.batch.micro_batches == 4
    for counts, buckets in pool.run(Job("tests.trainer.looking:sent", (given,), 2, 20.0)):
        assert buckets >= 4 * total_parameters(TINY) / (0.1 * 2**20)
        assert counts["dp reduce-scatter" if zero else "dp all-reduce"] == buckets
        assert counts["dp gather"] == (buckets if zero else 0)


@pytest.mark.slow
def test_d1_shards_of_gradients_travel_in_every_micro_batch_unless_asked_not_to(pool: Pool) -> None:
    for exchange, times in ((None, 4), ("step", 1)):
        given = plan(dp=2, micro_batch=2, bucket_mib=0.1, zero=2, gradient_exchange=exchange)
        for counts, buckets in pool.run(Job("tests.trainer.looking:sent", (given,), 2, 20.0)):
            assert counts["dp reduce-scatter"] == times * buckets


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_d6_bucket_size_changes_no_weight(zero: int, pool: Pool) -> None:
    plans = [plan(dp=2, micro_batch=2, zero=zero, bucket_mib=size) for size in (25.0, 0.03)]
    large, small = train_all(plans, 5, 20.0, pool=pool, beside=[None, 0])
    assert compare(large, small, 0.0)[1] is None
    assert small.losses == large.losses
    assert max(difference.relative for difference in small.weights) == 0  # a sum of two is the same in any order
