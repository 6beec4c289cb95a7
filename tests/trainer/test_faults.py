"""The proof can fail: faults that trainers have had are caught, each at the first figure that shows it."""

import re

import pytest

from meshwright.trainer.parity import parity
from meshwright.trainer.pool import Job, Pool

from .plans import TINY, cut, plan, variant

pytest.importorskip("torch", reason="training needs meshwright[train]")

from .faults import FAULTS

HALVES = cut(TINY, 5, 5)
NORMED = variant(family="qwen3", qk_norm=True)
TIED = variant(tied=True)
CAUGHT = {
    "mean_of_means": (plan(dp=2), "loss of step 1"),
    "clips_by_stage": (plan(stages=HALVES, pp=2, training={"clip": 0.1}), "first gradient"),
    "norm_gradients_stay_partial": (plan(arch=NORMED, tp=2, sp=True), "first gradient of model.*norm"),
    "tied_gradients_stay_apart": (plan(arch=TIED, stages=HALVES, pp=2), "first gradient of model.embed_tokens"),
    "loses_a_half_layer": (plan(stages=HALVES, pp=2), "the norm of the initial weights"),
    "shuffles_by_rank": (plan(dp=2), "loss of step 1"),
    "sends_too_early": (plan(dp=2, micro_batch=2), "first gradient"),
    "keeps_old_rows": (plan(dp=2, zero=1), "loss of step 2"),
    "forgets_other_groups": (plan(dp=4, micro_batch=2, zero=2, shard_group=2), "first gradient"),
    "counts_copies_twice": (plan(arch=NORMED, tp=2, training={"clip": 0.0}),
                            r"gradient norm of step 1.*suspicious.*counted? on each of 2 tensor ranks"),
}  # fmt: skip


class Faulty(Pool):
    """A pool of ranks that puts a fault into every layout, not into its reference."""

    def __init__(self, pool: Pool, fault: str) -> None:
        super().__init__()
        self._pool, self._fault = pool, fault

    def run(self, job: Job, *rest: object) -> list:
        if job.world > 1:
            job = Job("tests.trainer.faults:train_with", (*job.arguments, self._fault), job.world, job.timeout_s)
        return self._pool.run(job)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_and_named(fault: str, pool: Pool) -> None:
    given, said = CAUGHT[fault]
    sound = parity([given], steps=3, pool=pool)
    assert sound.first_difference is None
    found = parity([given], steps=3, pool=Faulty(pool, fault))
    assert not found.equal
    assert re.search(said, str(found.first_difference)), found.first_difference
