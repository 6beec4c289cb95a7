"""Cases C5 and C8 from timing files: data imbalance, persistent and transient slow ranks, healthy spread."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.files.findings import Diagnosis


def _found(path: Path, ms: NDArray[np.float64], tokens: object = None, squares: object = None) -> Diagnosis:
    """Diagnose a table of compute times [steps, ranks], a third of them forward."""
    more = "" if squares is None else ",tokens,sum_len_sq"
    rows = [f"step,rank,phase,ms{more}"]
    for step in range(ms.shape[0]):
        for rank in range(ms.shape[1]):
            work = "" if squares is None else f",{tokens[step, rank]},{squares[step, rank]}"  # type: ignore[index]
            rows += [f"{step},{rank},{phase},{ms[step, rank] * part}{work}" for phase, part in
                     (("forward", 1 / 3), ("backward", 2 / 3))]  # fmt: skip
    path.write_text("\n".join(rows) + "\n")
    return diagnose_inputs([path])


def _figures(found: Diagnosis) -> dict:
    (figures,) = found.tables.values()
    return figures  # type: ignore[return-value]


def test_c8_a_persistent_slow_rank(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    ms = rng.uniform(98, 102, (50, 8))
    ms[:, 5] = rng.uniform(117.5, 118.5, 50)
    (finding,) = _found(tmp_path / "t.csv", ms).findings
    assert (finding.kind, finding.ranks) == ("slow rank", (5,))
    assert finding.evidence["excess"] == pytest.approx(0.18, abs=0.01)
    assert finding.evidence["job_loss"] == pytest.approx(1 - 100 / 118, abs=0.01)
    assert finding.evidence["persistence"] >= 0.9  # type: ignore[operator]
    assert "matrix product on each rank alone, then an all-reduce of each pair" in finding.verify


def test_c8_jitter_has_no_culprit_and_a_spread_of_a_tenth_is_healthy(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    ms = rng.uniform(98, 102, (50, 8))
    ms[np.arange(50), rng.integers(0, 8, 50)] = 118
    found = _found(tmp_path / "jitter.csv", ms)
    assert not found.findings
    assert _figures(found)["verdict"] == "transient"
    assert _figures(found)["job_loss"] == pytest.approx(0.15, abs=0.01)
    assert any("no single culprit" in note for note in found.abstained)
    healthy = _found(tmp_path / "healthy.csv", rng.uniform(95, 105, (50, 8)))
    assert not healthy.findings
    assert (_figures(healthy)["verdict"], _figures(healthy)["threshold"]) == ("none", 1.10)


def test_c5_same_tokens_other_work_is_data_not_a_slow_gpu(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    long = rng.integers(0, 2, 40)  # who gets the one sequence of 8192; the other gets eight of 1024
    squares = np.where(np.arange(2) == long[:, None], 8192**2, 8 * 1024**2)
    tokens = np.full((40, 2), 8192)
    # 46.9 against 41.2 GFLOP a token (7 B parameters, causal attention), 8192 tokens, at 400 TFLOP/s, in ms
    ms = np.where(np.arange(2) == long[:, None], 46.9, 41.2) * 8192 / 400 * rng.uniform(0.998, 1.002, (40, 2))
    (finding,) = _found(tmp_path / "t.csv", ms, tokens, squares).findings
    assert finding.kind == "data imbalance"
    assert finding.ranks == ()
    evidence = finding.evidence
    assert evidence["most_over_least_sum_len_sq"] == 8
    assert set(evidence["tokens"].values()) == {8192}  # type: ignore[attr-defined]
    assert set(evidence["sum_len_sq"]) == {0, 1}  # type: ignore[call-overload]
    assert sum(evidence["wait_share"].values()) == pytest.approx(0.12, abs=0.005)  # type: ignore[attr-defined]
    assert "the slowest rank changes from step to step" in finding.cause
    assert finding.change == {"data.balance": True}


def test_c5_a_slow_rank_is_found_under_uneven_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    squares = rng.integers(8, 64, (60, 4)) * 1024**2
    ms = 300 + 60 * squares / (64 * 1024**2) + rng.uniform(-1, 1, (60, 4))
    ms[:, 2] *= 1.3
    kinds = {f.kind: f for f in _found(tmp_path / "t.csv", ms, np.full((60, 4), 8192), squares).findings}
    assert kinds["slow rank"].ranks == (2,)


def test_c5_without_the_work_columns_nothing_is_said_of_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    ms = np.where(np.arange(4) == rng.integers(0, 4, 40)[:, None], 130.0, 100.0)
    found = _found(tmp_path / "t.csv", ms)
    assert not found.findings
    assert _figures(found)["verdict"] == "transient"


def test_a_rank_that_waits_for_its_data(tmp_path: Path) -> None:
    rows = [f"{step},{rank},{phase},{ms}" for step in range(5) for rank in range(2)
            for phase, ms in (("data", 30 if rank else 2), ("forward", 30), ("backward", 60))]  # fmt: skip
    file = tmp_path / "t.csv"
    file.write_text("step,rank,phase,ms\n" + "\n".join(rows) + "\n")
    (finding,) = diagnose_inputs([file]).findings
    assert (finding.kind, finding.ranks) == ("input bound", (1,))
    assert finding.cost_s_per_step == pytest.approx(0.030)
    assert finding.share == pytest.approx(0.25)
