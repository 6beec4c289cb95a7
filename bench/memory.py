"""Microseconds that one memory evaluation takes, all pipeline ranks of a layout, in a batch of 10^5 layouts.

Run: PYTHONPATH=src python bench/memory.py
"""

import sys
import time

import numpy as np
from plan_speed import CASES

from meshwright.planner.space import space
from meshwright.predictor.memory_many import Columns, fullest

WANTED = 100_000
LIMIT_US = 3.0


def columns(setup) -> Columns:  # type: ignore[no-untyped-def]
    """The layouts of a job's whole space as columns, the first `WANTED` of them."""
    shares: dict[object, int] = {}
    degrees: dict[object, int] = {}
    pipelines: dict[object, int] = {}
    rows = []
    for group in space(setup).groups:
        key = (
            shares.setdefault(group.share(setup.proposal.seq_len), len(shares)),
            degrees.setdefault(group.structure, len(degrees)),
            pipelines.setdefault((group.schedule, group.placement, group.micro_batches), len(pipelines)),
        )
        rows += [(*key, zero) for zero in group.zeros]
    share, degree, pipeline, zero = np.array(rows[:WANTED]).T
    return Columns(list(shares), list(degrees), list(pipelines), share, degree, pipeline, zero)  # type: ignore[arg-type]


def main() -> int:
    """Print a line; 1 when a layout takes longer than it should."""
    what, case = next((name, case) for name, case in CASES.items() if "70B on 512" in name)
    setup = case.make()
    of = columns(setup)
    ranks = sum(max(of.pipelines[p][1]) + 1 for p in of.pipeline)
    for turn in ("first", "again"):  # the first also walks through the schedules
        start = time.process_time()
        found = fullest(setup, of)
        each = (time.process_time() - start) / len(found) * 1e6
        print(f"{what}: {len(found)} layouts, {ranks} pipeline ranks, {turn}: {each:.2f} us processor a layout")
    return 1 if each > LIMIT_US else 0


if __name__ == "__main__":
    sys.exit(main())
