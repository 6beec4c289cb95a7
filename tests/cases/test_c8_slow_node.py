"""C8: the three sets of eight ranks, as traces: one slow node, slowness that wanders, and a healthy spread."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.files.findings import Diagnosis

STEPS, RANKS, REDUCE = 50, 8, 1000.0


def traced(folder: Path, compute_ms: NDArray[np.float64]) -> Diagnosis:
    """Each step: every rank computes as long as it does, then one all-reduce of 1 ms after the last has come."""
    begun = np.append(0.0, np.cumsum(compute_ms.max(axis=1) * 1000 + REDUCE))
    members = str(list(range(RANKS)))
    for rank in range(RANKS):
        rows = []
        for step in range(STEPS):
            start, end = begun[step], begun[step + 1]
            came = start + compute_ms[step, rank] * 1000
            args = {"stream": 20, "Collective name": "allreduce", "Process Group Ranks": members, "Seq": step}
            for cat, name, a, b, more in (
                ("kernel", "gemm", start, came, {"stream": 7}), ("kernel", "ncclDevKernel_AllReduce", came, end, args),
                ("gpu_user_annotation", f"ProfilerStep#{step}", start, end, {}),
            ):  # fmt: skip
                rows.append({"ph": "X", "cat": cat, "name": name, "tid": 7, "ts": round(a, 3),
                             "dur": round(b - a, 3), "args": more})  # fmt: skip
        document = {"distributedInfo": {"rank": rank, "world_size": RANKS, "backend": "nccl"}, "traceEvents": rows}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return diagnose_paths([folder])


def test_c8_set_1_one_rank_is_slow_in_every_step(tmp_path: Path) -> None:
    times = 100 + 2 * np.random.default_rng(1).uniform(-1, 1, (STEPS, RANKS))
    times[:, 5] = 118
    (found,) = traced(tmp_path, times).findings
    assert found.kind == "slow rank"
    assert found.ranks == (5,)
    assert found.evidence["excess"] == pytest.approx(0.18, abs=0.01)
    assert found.evidence["persistence"] == 1.0
    assert found.share == pytest.approx(0.15, abs=0.01)  # 100 of 118 ms would do
    assert "it computes" in found.cause
    assert "all-reduce" in found.verify


def test_c8_set_2_slowness_that_wanders_has_no_culprit(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    times = 100 + 2 * rng.uniform(-1, 1, (STEPS, RANKS))
    times[np.arange(STEPS), rng.integers(0, RANKS, STEPS)] = 118
    (found,) = traced(tmp_path, times).findings
    assert found.kind == "jitter"
    assert "no single culprit" in found.cause
    assert found.share == pytest.approx(0.15, abs=0.01)


def test_c8_set_3_a_healthy_spread_is_no_finding(tmp_path: Path) -> None:
    times = 100 + 5 * np.random.default_rng(3).uniform(-1, 1, (STEPS, RANKS))
    assert traced(tmp_path, times).findings == ()
