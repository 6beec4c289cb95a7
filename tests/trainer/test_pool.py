"""A pool of ranks: jobs follow each other in the same processes, and a job that breaks breaks nothing else."""

import os
import time

import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.trainer.pool import Job, Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")

HERE = __name__


def job(name: str, world: int, *arguments: object) -> Job:
    return Job(f"{HERE}:{name}", arguments, world, 20.0)


def process() -> int:
    return os.getpid()


def gathered(value: int) -> list[int]:
    import torch.distributed as dist

    held = [0] * dist.get_world_size()
    dist.all_gather_object(held, value + dist.get_rank())
    return held


def breaks_on(rank: int, how: str) -> None:
    import torch.distributed as dist

    if dist.get_rank() == rank:
        if how == "dies":
            os.abort()
        raise InputError(()) if how == "refuses" else ValueError("this rank\nis unwell")
    dist.barrier()  # which the broken rank does not reach


@pytest.mark.slow
def test_jobs_of_any_size_run_in_the_same_processes(pool: Pool) -> None:
    first = pool.run(job("process", 2))
    assert pool.run(job("gathered", 3, 10)) == [[10, 11, 12]] * 3
    assert pool.run(job("gathered", 1, 5)) == [[5]]
    assert pool.run(job("process", 2)) == first
    assert len({*first, os.getpid()}) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [("raises", r"^rank 1: ValueError: this rank is unwell"), ("dies", r"^rank 1: ended without a word: Fatal.*Abort"),
     ("refuses", r"^rank 1: InputError")],
)  # fmt: skip
def test_a_broken_job_is_named_and_the_next_one_runs(how: str, said: str) -> None:
    with Pool() as pool:
        begun = time.monotonic()
        with pytest.raises(RunFailed, match=said):
            pool.run(job("breaks_on", 2, 1, how))
        assert time.monotonic() - begun < 30
        assert pool.run(job("gathered", 2, 0)) == [[0, 1]] * 2
