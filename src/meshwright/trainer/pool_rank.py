"""One rank of a pool: waits for jobs and does them, each in a process group of its own.

`python -m meshwright.trainer.pool_rank FOLDER RANK NUMBER`: from that job on.
"""

import importlib
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

from meshwright.trainer.pool import Answer, Job, answer_file, job_file, leave
from meshwright.trainer.rank import follow_parent
from meshwright.trainer.torch_versions import check_version

_LOOK_S, _IDLE_S = 0.01, 0.1  # between two looks for a job: at first, and in the end


def do(job: Job, rank: int, store: Path) -> Any:
    """Join the job's group and call its function."""
    dist.init_process_group(
        "gloo", store=FileStore(str(store), job.world), rank=rank, world_size=job.world,
        timeout=timedelta(seconds=job.timeout_s),
    )  # fmt: skip
    try:
        module, _, name = job.function.partition(":")
        return getattr(importlib.import_module(module), name)(*job.arguments)
    finally:
        dist.destroy_process_group()


def main(folder: Path, rank: int, number: int) -> None:
    """Do every job from `number` on whose world this rank belongs to, until the parent ends this process."""
    follow_parent()
    check_version()
    torch.set_num_threads(1)
    while True:
        # Ranks that sit out a job wait here, where no timeout of a collective runs.
        pause = _LOOK_S
        while not job_file(folder, number).exists():
            time.sleep(pause)
            pause = min(_IDLE_S, 1.02 * pause)
        job: Job = pickle.loads(job_file(folder, number).read_bytes())  # written by our own parent
        if rank < job.world:
            try:
                answer = Answer(do(job, rank, folder / f"store{number}"))
            except Exception as error:
                answer = Answer(error=" ".join(f"{type(error).__name__}: {error}".split()))
            leave(answer, answer_file(folder, number, rank))
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
