"""One rank of a parity comparison: trains one case after the other, each in a process group of its own.

`python -m meshwright.trainer.parity_rank FOLDER RANK`. Many cases share one start of Python and PyTorch.
"""

import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

from meshwright.files.strict_json import dump
from meshwright.trainer.courses import LAST_WORDS, Case, Course
from meshwright.trainer.data import open_tokens, samples
from meshwright.trainer.engine import Engine
from meshwright.trainer.rank import follow_parent
from meshwright.trainer.replicas import drifted, weight_norm
from meshwright.trainer.torch_versions import check_version


def train_case(case: Case) -> Course:
    """Train a case in the default process group. Collective."""
    engine, plan = Engine(case.plan, torch.device("cpu")), case.plan
    tokens, seed = open_tokens(case.tokens), plan.setup.proposal.training.seed
    before = weight_norm(engine)
    batch = plan.batch
    outcomes = [
        engine.step(step, samples(tokens, step, batch.global_batch, batch.seq_len, seed)) for step in range(case.steps)
    ]
    return Course(
        tuple(outcome.loss for outcome in outcomes), tuple(outcome.grad_norm for outcome in outcomes), before,
        weight_norm(engine), drifted(engine),
    )  # fmt: skip


def main(folder: Path, rank: int) -> None:
    """Train every case whose world this rank belongs to; rank 0 leaves `course0.json`, `course1.json`, ..."""
    follow_parent()
    check_version()
    torch.set_num_threads(1)
    cases: list[Case] = pickle.loads((folder / "cases.pickle").read_bytes())  # written by our own parent
    for index, case in enumerate(cases):
        world = case.plan.layout.world
        if rank >= world:
            continue
        # Ranks that sat out the case before wait here, where no timeout of a collective runs.
        while index > 0 and not (folder / f"course{index - 1}.json").exists():
            time.sleep(0.05)
        store = FileStore(str(folder / f"store{index}"), world)
        timeout = timedelta(seconds=case.timeout_s)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
        try:
            course = train_case(case)
            if rank == 0:
                dump(course, folder / f"course{index}.json")
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        print(LAST_WORDS + " ".join(f"{type(error).__name__}: {error}".split()), file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 3))
    sys.stderr.flush()
    # All is written. Interpreter teardown races with gloo's threads and can abort a process that has succeeded.
    os._exit(0)
