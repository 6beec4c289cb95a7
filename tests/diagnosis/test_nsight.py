"""Nsight Systems exports: findings where there is evidence, none on healthy files."""

from pathlib import Path

import numpy as np
import pytest
from tests.traces.made_exports import KERNEL, RUNTIME, STRINGS, export, pid

from meshwright.diagnosis.device_gaps import gaps_of
from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.timeline.columns import Kind, build
from meshwright.traces.nsight import NEVER

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "nsys-sqlite"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no folder of public traces (../shared/traces)")


@real
@pytest.mark.parametrize("name", ["healthy_1pct", "healthy_judged_1pct"])
def test_one_percent_of_idle_is_no_finding(name: str) -> None:
    assert not diagnose_inputs([REAL / f"{name}.sqlite"]).findings


@real
def test_one_shared_stream_explains_that_nothing_overlaps() -> None:
    (finding,) = diagnose_inputs([REAL / "mfu_2gpu_before.sqlite"]).findings
    assert finding.kind == "no overlap"
    assert finding.ranks == (0,)  # 17.17 ms there; 8.23 ms on the other is under the threshold
    assert finding.cost_s_per_step == pytest.approx(17.17e-3, abs=5e-6)


@real
def test_a_capture_without_collectives_does_not_claim_zero() -> None:
    found = diagnose_inputs([REAL / "h100_2gpu_1s.sqlite"])
    assert any("no collectives found on 2 GPUs" in text for text in found.abstained)
    assert [finding.kind for finding in found.findings] == ["exposed copies"]
    assert found.ranks == ()  # no split with communication at 0 where none was recognised
    assert [row["compute_s"] for row in found.tables["by GPU"]] == pytest.approx([22.4e-3, 22.4e-3], abs=1e-4)  # type: ignore[attr-defined]


def _kernels(launch: list[int]) -> dict:
    rows = [(k * 100, k * 100 + 40, 0, 7, k, pid(5), 1, 1) for k in range(len(launch))]
    calls = [(at, at + 1, k, pid(5), 1) for k, at in enumerate(launch)]
    return {"CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, rows), "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, calls),
            "StringIds": STRINGS}  # fmt: skip


def test_a_late_launch_is_the_hosts_an_early_one_is_not(tmp_path: Path) -> None:
    late = diagnose_inputs([export(tmp_path / "late.sqlite", _kernels([k * 100 - 5 for k in range(50)]))])
    (finding,) = late.findings
    assert finding.kind == "host bound"
    assert finding.evidence["host_share_of_idle"] == pytest.approx(55 / 60)
    early = diagnose_inputs([export(tmp_path / "early.sqlite", _kernels([-100] * 50))])
    assert not early.findings
    assert any("no cause is named" in text for text in early.abstained)


def test_gaps_add_up() -> None:
    line = build({"rank": [0] * 3, "start": [0, 20, 50], "end": [10, 30, 60], "kind": [Kind.COMPUTE] * 3,
                  "name": [0] * 3}, names=("k",), mode="measured")  # fmt: skip
    gaps = gaps_of(line, 0, np.array([0, 14, NEVER]))
    assert (gaps.span, gaps.idle, gaps.host, gaps.launched, gaps.unknown) == (60, 30, 4, 6, 20)
