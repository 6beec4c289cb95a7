"""Seeded jobs with one planted fault each: the fault is named first; healthy jobs have no finding."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.files.findings import Diagnosis

from .kineto_job import Job, write_job

Planting = Callable[..., tuple[Job, str | None, tuple[int, ...]]]
SHAPES = ((2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2), (2, 2, 2), (4, 1, 2), (2, 1, 4), (4, 2, 1))
SEEDS = 7  # of each kind; `slow` runs as many again and again
MORE = 23


def shape(rng: np.random.Generator, *, pipeline: bool | None = None, tensor: bool | None = None) -> dict[str, int]:
    wanted = [
        one for one in SHAPES
        if (pipeline is None or (one[2] > 1) == pipeline) and (tensor is None or (one[1] > 1) == tensor)
    ]  # fmt: skip
    dp, tp, pp = wanted[rng.integers(len(wanted))]
    return {"dp": dp, "tp": tp, "pp": pp, "micro_batches": int(rng.choice([4, 8])) if pp > 1 else 2}


def healthy(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    return Job(**shape(rng), seed=seed, forward=float(rng.uniform(2000, 6000))), None, ()


def slow_rank(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng)
    rank = int(rng.integers(size["dp"] * size["tp"] * size["pp"]))
    job = Job(**size, seed=seed, forward=4000, slow_ranks={rank: float(rng.uniform(1.3, 1.8))})
    return job, "slow rank", (rank,)


def late_host(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng, pipeline=False)
    rank = int(rng.integers(size["dp"] * size["tp"]))
    job = Job(**size, seed=seed, forward=3000, late_ranks={rank: float(rng.uniform(6000, 12000))})
    return job, "slow rank", (rank,)


def jitter(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng, pipeline=False)
    job = Job(**size, seed=seed, forward=4000, steps=8, wandering=float(rng.uniform(1.3, 1.6)))
    return job, "jitter", ()


def heavy_stage(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng, pipeline=True)
    stage = int(rng.integers(size["pp"]))
    job = Job(**size, seed=seed, forward=3000, stage_factors={stage: float(rng.uniform(1.35, 2.0))})
    each = size["dp"] * size["tp"]
    return job, "stage imbalance", tuple(range(stage * each, (stage + 1) * each))


def slow_link(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng, tensor=True)
    ranks = np.arange(size["dp"] * size["tp"] * size["pp"]).reshape(size["pp"], size["dp"], size["tp"])
    stage, replica = int(rng.integers(size["pp"])), int(rng.integers(size["dp"]))
    group = tuple(ranks[stage, replica].tolist())
    job = Job(**size, seed=seed, forward=1500, slow_group=group, link_factor=float(rng.uniform(4, 8)))
    return job, "slow link", group


def exposed(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    return Job(**shape(rng), seed=seed, hidden=False, link=15_000.0, forward=2500), "communication not overlapped", ()


def repeated(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    size = shape(rng, pipeline=False) | {"micro_batches": 4}
    job = Job(**size, seed=seed, noise=0.0, forward=2500, every_micro_batch=True, link=40_000.0)
    return job, "gradients exchanged every micro-batch", ()


def host_bound(seed: int, rng: np.random.Generator) -> tuple[Job, str | None, tuple[int, ...]]:
    job = Job(**shape(rng), seed=seed, forward=300, host_gap=float(rng.uniform(150, 400)), buckets=(1 << 20, 2 << 20))
    return job, "host bound", ()


KINDS = (healthy, slow_rank, late_host, jitter, heavy_stage, slow_link, exposed, repeated, host_bound)


def disguised(job: Job, rng: np.random.Generator) -> Job:
    """The same job in other clothes: clocks of nodes apart, no sequence numbers, kernels renamed, another schedule."""
    nodes = {rank: float(rank // 2) * 7_000.0 for rank in range(job.world)}
    changes: list[dict[str, Any]] = [
        {}, {"offsets": nodes}, {"numbered": False}, {"kernel_name": "my_own_exchange_v7"},
        {"schedule": "gpipe"} if job.pp > 1 else {}, {"numbered": False, "offsets": nodes},
    ]  # fmt: skip
    return replace(job, **changes[rng.integers(len(changes))])


def verdict(job: Job, folder: Path) -> Diagnosis:
    return diagnose_paths([write_job(job, folder)], cache=False)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_planted_cause_comes_first(kind: Planting, tmp_path: Path) -> None:
    wrong = failures(kind, range(SEEDS), tmp_path)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_in_two_hundred_jobs_two_percent_may_go_wrong_and_no_healthy_one(tmp_path: Path) -> None:
    wrong = {kind.__name__: failures(kind, range(SEEDS, SEEDS + MORE), tmp_path / kind.__name__) for kind in KINDS}
    assert not wrong["healthy"]
    assert sum(map(len, wrong.values())) <= 0.02 * MORE * len(KINDS), wrong


def failures(kind: Planting, seeds: range, folder: Path) -> list[str]:
    """Which jobs of a kind are diagnosed wrongly, and as what."""
    wrong = []
    for seed in seeds:
        rng = np.random.default_rng((KINDS.index(kind), seed))
        job, wanted, ranks = kind(seed, rng)
        job = disguised(job, rng)
        found = verdict(job, folder / str(seed)).findings
        first = found[0] if found else None
        if (first.kind if first else None) != wanted or (ranks and first and first.ranks != ranks):
            wrong.append(f"{job}: {[(one.kind, one.ranks, round(one.share or 0, 3)) for one in found]}")
    return wrong
