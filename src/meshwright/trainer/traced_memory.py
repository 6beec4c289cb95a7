"""Tracing every pipeline rank of a plan in a child process, so that the caller needs no PyTorch and keeps no trace.

`python -m meshwright.trainer.traced_memory`: a pickled (plan, pipeline ranks) on standard input, a JSON object a rank
on standard output.
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from meshwright.basics.errors import InputError, RunFailed, bad_input
from meshwright.files.plan import Plan
from meshwright.files.strict_json import from_json, to_json
from meshwright.files.traced import TRACED, TracedRank
from meshwright.trainer.unsupported import unsupported

_LONGEST = 600  # characters of the child's last words that are passed on


def traced_memory(
    plan: Plan, progress: Callable[[str], None] = lambda line: None, pipeline_ranks: Sequence[int] | None = None
) -> tuple[TracedRank, ...]:
    """The traced bytes and messages of each pipeline rank ("traced, CPU kernels"), or of those asked for.

    Raises InputError for a plan that the trainer cannot run and where PyTorch is not installed, RunFailed when the
    trace breaks off.
    """
    if refused := unsupported(plan):
        raise InputError(refused)
    if find_spec("torch") is None:
        raise bad_input("a trace needs PyTorch", field="traced", legal="pip install 'meshwright[train]'")
    ranks = tuple(range(plan.layout.pp)) if pipeline_ranks is None else tuple(pipeline_ranks)
    found: list[TracedRank] = []
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "meshwright.trainer.traced_memory"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(pickle.dumps((plan, ranks)))
            child.stdin.close()
            for line in child.stdout:
                rank = from_json(json.loads(line), TracedRank)
                found.append(rank)
                progress(f"pipeline rank {rank.pipeline_rank}: {TRACED}, {rank.seconds:.1f} s")
            child.wait()
        finally:
            child.kill()
            child.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if child.returncode or len(found) < len(ranks):
        last = said.splitlines()[-1][:_LONGEST] if said else f"exit code {child.returncode}"
        raise RunFailed(f"the trace of pipeline rank {ranks[len(found)]} failed: {last}")
    return tuple(found)


def _child() -> None:
    from meshwright.trainer.rank import follow_parent
    from meshwright.trainer.traced import traced

    follow_parent()
    plan, ranks = pickle.loads(sys.stdin.buffer.read())
    for rank in ranks:
        print(json.dumps(to_json(traced(plan, rank))), flush=True)


if __name__ == "__main__":
    _child()
