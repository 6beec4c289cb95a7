"""Case A10: a pipeline that was not needed, ranked against none."""

from pathlib import Path
from typing import Any

import pytest

import meshwright

from .jobs import job

MODEL = "name = 'gpt-neox-20b'"
CLUSTER = "gpu = 'A100-80GB-SXM'\ngpus = 128\ngpus_per_node = 8\nintra_node = 'nvlink3'\ninter_node = 'ib-hdr'"


def planned(folder: Path, pp: int, m: int) -> Any:
    """The best plan with tp = 2 and so many stages, m micro-batches of one sequence on each replica."""
    batch = f"global = {64 // pp * m}\nseq_len = 4096\nmicro_batch = 1"
    layout = f"[layout]\ntp = 2\npp = {pp}\ncp = 1\nzero = 1\nschedule = '1f1b'\nrecompute = 'none'"
    return meshwright.plan(job(folder, MODEL, CLUSTER, batch, layout), top=1)["plans"][0]


@pytest.mark.parametrize(("m", "idle", "ceiling"), [(1, 0.75, 42.5), (2, 0.6, 68), (4, 3 / 7, 97), (8, 3 / 11, 124)])
def test_a10_idle_share_and_what_it_leaves(tmp_path: Path, m: int, idle: float, ceiling: float) -> None:
    """The bubble alone leaves 42.5, 68, 97, 124 of 170 TFLOP/s; a prediction is not above that."""
    without, with_stages = planned(tmp_path, 1, m), planned(tmp_path, 4, m)
    assert with_stages["bubble_fraction"] == pytest.approx(idle, abs=0.03)
    rate, best = with_stages["tokens_per_s_per_gpu"], without["tokens_per_s_per_gpu"]
    assert rate < best
    alone = without["step_time_s"] - without["terms"]["dp_comm"] - without["terms"]["optimizer"]  # compute and tp
    assert rate < ceiling / 170 * best * without["step_time_s"] / alone * 1.02


def test_a10_few_micro_batches_are_named_first(tmp_path: Path) -> None:
    found = planned(tmp_path, 4, 1)
    terms = found["terms"]
    assert terms["bubble"] > max(terms["pp_comm"], terms["imbalance"], terms["tp_comm"])


def test_a10_no_pipeline_where_memory_allows(tmp_path: Path) -> None:
    batch = "global = 1024\nseq_len = 4096"
    best = meshwright.plan(job(tmp_path, MODEL, CLUSTER, batch), top=1)["plans"][0]["layout"]
    assert best["pp"] == 1
    assert best["tp"] <= 8
