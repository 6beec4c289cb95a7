"""Traces in a child process: a value a pipeline rank, progress as they come, one clear error."""

import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.trainer.traced_memory import traced_memory

from .plans import TINY, cut, plan

pytest.importorskip("torch", reason="training needs meshwright[train]")


def test_every_pipeline_rank_is_traced_and_told() -> None:
    lines: list[str] = []
    found = traced_memory(plan(stages=cut(TINY, 4, 6), pp=2), lines.append)
    assert [rank.pipeline_rank for rank in found] == [0, 1]
    assert [line.split(",")[0] for line in lines] == ["pipeline rank 0: traced", "pipeline rank 1: traced"]
    assert all("CPU kernels" in line for line in lines)
    assert sum(rank.parameters for rank in found) == 4 * TINY_PARAMETERS


# Embedding and head 2 · 256 · 64, final norm 64; a layer: q and o 64 · 64, k and v 32 · 64, three of 176 · 64, norms.
TINY_PARAMETERS = 2 * 256 * 64 + 64 + 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 176 * 64 + 2 * 64)


def test_what_the_trainer_cannot_run_is_refused_before_a_process_starts() -> None:
    with pytest.raises(InputError, match="context parallelism"):
        traced_memory(plan(cp=2))


def test_a_trace_that_breaks_off_says_where_and_why() -> None:
    with pytest.raises(RunFailed, match=r"the trace of pipeline rank 5 failed: \w+Error: "):
        traced_memory(plan(), pipeline_ranks=[5])
