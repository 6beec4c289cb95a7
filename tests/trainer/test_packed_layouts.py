"""Samples of unequal length train alike in every layout: packed documents, and padding with a loss mask."""

from dataclasses import replace

import pytest

from meshwright.files.plan import Plan
from meshwright.files.setup import DataSource, Pack
from meshwright.trainer.parity import parity
from meshwright.trainer.pool import Pool

from .plans import TINY, cut, plan, variant

pytest.importorskip("torch", reason="training needs meshwright[train]")

FOUR = cut(TINY, 3, 2, 2, 3)
MODEL = variant(tied=True, qk_norm=True)


def packed(pack: Pack, made: Plan, balance: bool = True) -> Plan:
    data = DataSource(pack=pack, balance=balance)
    return replace(made, setup=replace(made.setup, name=f"{pack}, {made.setup.name}", data=data))


@pytest.mark.slow
def test_samples_of_unequal_length_train_alike_in_every_layout(pool: Pool) -> None:
    plans = [
        packed("pad", plan("dp", MODEL, dp=2)),
        packed("pad", plan("dp, dealt in order", MODEL, dp=2, micro_batch=1), balance=False),
        packed("pad", plan("pp", MODEL, pp=2, stages=cut(TINY, 4, 6), micro_batch=2)),
        packed("documents", plan("micro-batches of 1, recompute", MODEL, micro_batch=1, recompute="full")),
        packed("documents", plan("dp, selective", MODEL, dp=2, micro_batch=2, recompute="selective")),
        packed("documents", plan("ZeRO-3", MODEL, dp=2, zero=3)),
        packed("documents", plan("sp", MODEL, tp=2, sp=True)),
        packed("documents", plan("pp", MODEL, pp=2, stages=cut(TINY, 4, 6), micro_batch=2, schedule="zb-h1")),
        packed("documents", plan("in a V", MODEL, pp=2, vpp=2, stages=FOUR, placement=(0, 1, 1, 0), schedule="zbv")),
    ]
    found = parity(plans, steps=2, pool=pool)
    assert found.first_difference is None
