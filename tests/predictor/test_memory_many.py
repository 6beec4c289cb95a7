"""Many layouts at once need what each needs on its own."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from meshwright.files.plan import Plan
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Schedule
from meshwright.layout.partition import even_stages
from meshwright.model.architecture import Architecture
from meshwright.predictor.compute import share_of
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.memory_many import Columns, fullest

SHAPES = [
    {"dp": 8}, {"dp": 4, "tp": 2, "sp": True, "etp": 2}, {"dp": 2, "pp": 4}, {"dp": 2, "pp": 4, "schedule": "gpipe"},
    {"tp": 2, "dp": 2, "pp": 2, "vpp": 2, "schedule": "interleaved", "etp": 2},
    {"dp": 4, "pp": 2, "vpp": 2, "schedule": "zbv"}, {"cp": 2, "dp": 2, "pp": 2}, {"pp": 12, "dp": 1},
    {"dp": 8, "ep": 4}, {"dp": 8, "shard_group": 4},
]  # fmt: skip
DENSE = Architecture("dense", "llama", 8, 512, 8, 4, 64, 1376, 4001, tied=True)
EXPERTS = Architecture(
    "experts", "mixtral", 6, 512, 8, 4, 64, 1024, 4000, experts=8, active_experts=2, dense_layers=(0,)
)


@pytest.mark.parametrize("arch", [DENSE, EXPERTS], ids=lambda arch: arch.name)
@pytest.mark.parametrize("runner", ["any", "meshwright", "deepspeed", "torchtitan"])
def test_equals_one_by_one(make_plan: Callable[..., Plan], arch: Architecture, runner: str) -> None:
    plans = [
        make_plan(arch, micro, m, 256, zero=zero, recompute=recompute, runnable_by=runner, **shape)
        for shape in SHAPES if arch.experts or "ep" not in shape
        for micro, m in ((1, 4), (2, 8))
        for zero in (0, 1, 2, 3)
        for recompute in ("none", "selective", "full")
    ]  # fmt: skip
    shares, degrees, pipelines = [], [], []
    for plan in plans:
        shares.append(share_of(plan.layout, plan.batch))
        degrees.append(plan.layout)
        pipelines.append((plan.layout.schedule, plan.layout.placement, plan.batch.micro_batches))
        assert plan.layout.stages == even_stages(arch, len(plan.layout.placement))
    # The lists name each thing once: layouts point into them.
    unique_shares, unique_pipelines = list(dict.fromkeys(shares)), list(dict.fromkeys(pipelines))
    found = fullest(
        plans[0].setup,
        Columns(
            unique_shares, degrees, unique_pipelines, np.array([unique_shares.index(share) for share in shares]),
            np.arange(len(plans)), np.array([unique_pipelines.index(one) for one in pipelines]),
            np.array([plan.layout.zero for plan in plans]),
        ),
    )  # fmt: skip
    alone = [max(rank.total for rank in rank_memory(p.setup, p.layout, p.batch)) for p in plans]
    assert found == pytest.approx(alone, abs=16)  # whole bytes of every kind


def test_the_same_layout_twice_needs_the_same(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(DENSE, 1, 4, 256, pp=2)
    share, batch = share_of(plan.layout, plan.batch), plan.batch
    other = share_of(plan.layout, replace(batch, micro_batch=2)) if isinstance(batch, Batch) else share
    one = ("1f1b", plan.layout.placement, 4)
    columns = Columns([share, other], [plan.layout], [one], *np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1]]))
    first, larger, again = fullest(plan.setup, columns)
    assert first == again < larger


@pytest.mark.parametrize("unused", [("1f1b", (0, 1, 2, 3), 4), ("zbv", (0, 1, 1, 0), 8)])
def test_a_pipeline_that_no_layout_has_changes_nothing(
    make_plan: Callable[..., Plan], unused: tuple[Schedule, tuple[int, ...], int]
) -> None:
    plan = make_plan(DENSE, 1, 4, 256, pp=2)
    one: tuple[Schedule, tuple[int, ...], int] = ("1f1b", plan.layout.placement, 4)
    share, where = share_of(plan.layout, plan.batch), np.zeros((3, 1), np.int64)
    alone = fullest(plan.setup, Columns([share], [plan.layout], [one], *where, np.ones(1, np.int64)))
    beside = fullest(plan.setup, Columns([share], [plan.layout], [one, unused], *where, np.ones(1, np.int64)))
    assert alone == beside
