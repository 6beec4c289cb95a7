"""D1 and D3 in traces: gradients exchanged for every micro-batch, and an exchange that runs only after computing."""

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.files.findings import Diagnosis

SIZES = (25 << 20, 25 << 20, 9 << 20)


def kernel(name: str, ts: float, dur: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": stream, **args}}  # fmt: skip


def diagnosed(folder: Path, *, times: int, serial: bool) -> Diagnosis:
    """Two ranks, three steps of 4 micro-batches: 3 buckets exchanged `times` times a step, behind compute or after."""
    for rank in range(2):
        rows: list[dict[str, Any]] = []
        at, number = 0.0, 0
        for step in range(3):
            begun = at
            for micro in range(4):
                rows.append(kernel("gemm", at, 3000))
                at += 3000
                for k, size in enumerate(SIZES if micro >= 4 - times else ()):
                    args = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Seq": number,
                            "In msg nelems": size // 4, "dtype": "Float"}  # fmt: skip
                    start = at + 400 * k if serial else at - 2500 + 400 * k
                    rows.append(kernel("ncclDevKernel_AllReduce", start, 400, 20, **args))
                    number += 1
                at += 1200 if serial and micro >= 4 - times else 0
            rows.append({"ph": "X", "cat": "gpu_user_annotation", "name": f"ProfilerStep#{step}", "pid": 0, "tid": 7,
                         "ts": begun, "dur": at - begun, "args": {}})  # fmt: skip
        document = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}, "traceEvents": rows}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return diagnose_paths([folder])


@pytest.mark.parametrize("serial", [True, False])
def test_d1_four_times_the_buckets_are_flagged_with_three_quarters_avoidable(tmp_path: Path, serial: bool) -> None:
    (found,) = diagnosed(tmp_path, times=4, serial=serial).findings
    assert found.kind == "gradients exchanged every micro-batch"
    assert found.evidence["collectives_per_step"] == 12
    assert found.evidence["buckets"] == 3
    assert found.evidence["avoidable_share"] == 0.75
    assert "75%" in found.cause
    wasted = 3 * 1.2e-3 if serial else 0.0
    assert found.cost_s_per_step == pytest.approx(wasted, rel=1e-6)


def test_d3_an_exchange_after_computing_is_exposed_as_a_whole(tmp_path: Path) -> None:
    (found,) = diagnosed(tmp_path, times=1, serial=True).findings
    assert found.kind == "communication not overlapped"
    assert found.evidence["exposed_s"] == pytest.approx(1.2e-3)
    assert found.evidence["transfer_s"] == pytest.approx(1.2e-3)
    assert "100% of the gradient exchange is exposed" in found.cause
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in found.verify
    assert found.share == pytest.approx(1.2 / 13.2, rel=1e-3)


def test_d3_an_exchange_behind_computing_is_healthy(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, times=1, serial=False)
    assert found.findings == ()
    assert all(split.exposed_comm_s == 0 and split.comm_s > 0 for split in found.ranks)
