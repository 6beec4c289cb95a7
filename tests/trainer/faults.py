"""Jobs for a pool: training with one fault put in, of the kinds that trainers have had."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch.distributed as dist

from meshwright.trainer import engine, parity_rank
from meshwright.trainer.courses import Case, Course
from meshwright.trainer.engine import Engine
from meshwright.trainer.parallel import parallelize, sharded
from meshwright.trainer.parallel.buckets import GradientBuckets
from meshwright.trainer.parallel.pipeline import MicroBatchLoop
from meshwright.trainer.parallel.sharded import Sharded
from meshwright.trainer.step import own_square_sum

ENGINE = "meshwright.trainer.engine"


def mean_of_means() -> Any:
    """Each replica divides by its own tokens, and replicas are averaged."""
    right = MicroBatchLoop.run

    def run(self: MicroBatchLoop, tokens: Any, labels: Any, scale: float, *rest: Any) -> Any:
        mine = int((labels >= 0).sum())
        return right(self, tokens, labels, 1 / (mine * dist.get_world_size()), *rest)

    return patch.object(MicroBatchLoop, "run", run)


def clips_by_stage() -> Any:
    """Each rank clips by the norm of what it holds."""
    right = engine.clip

    def clip(owned: Any, norm: float, limit: float, scale: float) -> None:
        gradients = {name: p.grad for name, p in owned.items()}
        right(owned, float(sum(g.double().square().sum() for g in gradients.values()).sqrt()), limit, scale)

    return patch(f"{ENGINE}.clip", clip)


def norm_gradients_stay_partial() -> Any:
    return patch(f"{ENGINE}.sum_partial_gradients", lambda *rest: None)


def tied_gradients_stay_apart() -> Any:
    return patch(f"{ENGINE}.exchange_tied", lambda *rest: None)


def loses_a_half_layer() -> Any:
    right = parallelize._stages_of_rank

    def stages(plan: Any, rank: int) -> Any:
        return [(stage, tuple(u for u in units if u != "layers.2.ffn")) for stage, units in right(plan, rank)]

    return patch("meshwright.trainer.parallel.parallelize._stages_of_rank", stages)


def shuffles_by_rank() -> Any:
    """Each rank has an order of its own, so that some samples are trained twice and some never."""
    right = Engine.step

    def step(self: Engine, number: int, samples: np.ndarray, *rest: Any) -> Any:
        return right(self, number, np.roll(samples, dist.get_rank(), axis=0), *rest)

    return patch.object(Engine, "step", step)


def sends_too_early() -> Any:
    """A bucket leaves with the first micro-batch's gradients."""
    right = GradientBuckets._arrived

    def arrived(self: GradientBuckets, bucket: Any, x: Any) -> None:
        bucket.expected = len(bucket.parameters)
        right(self, bucket, x)

    return patch.object(GradientBuckets, "_arrived", arrived)


def keeps_old_rows() -> Any:
    return patch.object(Sharded, "gather", lambda self: None)


def forgets_other_groups() -> Any:
    return patch.object(sharded, "all_reduce", lambda x, *rest: x)


def counts_copies_twice() -> Any:
    """The norm counts copied parameters on every tensor rank."""
    right = own_square_sum

    def everywhere(tensors: Any, mesh: Any, tied: bool) -> Any:
        from types import SimpleNamespace

        first = SimpleNamespace(copies=mesh.copies, ends=mesh.ends, tp=SimpleNamespace(rank=0))
        return right(tensors, first, tied)

    return patch(f"{ENGINE}.own_square_sum", everywhere)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault
    for fault in (
        mean_of_means, clips_by_stage, norm_gradients_stay_partial, tied_gradients_stay_apart, loses_a_half_layer,
        shuffles_by_rank, sends_too_early, keeps_old_rows, forgets_other_groups, counts_copies_twice,
    )
}  # fmt: skip


@contextmanager
def seeded(fault: str) -> Iterator[None]:
    with FAULTS[fault]():
        yield


def train_with(case: Case, fault: str) -> Course:
    """Train a case with a fault."""
    with seeded(fault):
        return parity_rank.train_case(case)
