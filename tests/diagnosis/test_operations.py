"""Operation tables: the published analysis of job ST, and made jobs with a planted cause."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import answers_or_says

from meshwright.basics.errors import InputError
from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.diagnosis.operation_graph import graph_of
from meshwright.diagnosis.operations import what_if
from meshwright.files.resolve import read_setup
from meshwright.traces.operations import read_operations

pa = pytest.importorskip("pyarrow", reason="operation tables need meshwright[tables]")
pq = pytest.importorskip("pyarrow.parquet")

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "straggler-whatif"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no folder of public traces (../shared/traces)")
JOB = """
format = 1
[model]
layers = 32
hidden = 1024
heads = 16
vocab = 32000
[cluster]
gpu = "A100-80GB-SXM"
gpus = 8
[batch]
global = 8
seq_len = 1024
"""


@real
def test_job_st_as_published() -> None:
    published = json.loads((REAL / "result-ST.json").read_text())
    table = read_operations(REAL / "trace-ST.parquet")
    found = what_if(table, graph_of(table))
    assert found.traced_s == pytest.approx(np.mean(list(published["step_t_base"].values())), rel=1e-4)
    assert found.no_delay_s == pytest.approx(json.loads((REAL / "ms-ST.json").read_text())["tori"], rel=1e-3)
    assert found.ideal_s == pytest.approx(1.843, abs=0.002)
    assert found.traced_s / found.no_delay_s == pytest.approx(1.019, abs=0.001)
    assert found.slowdown == pytest.approx(1.179, abs=0.005)
    assert max(found.by_stage, key=found.by_stage.__getitem__) == 3
    for stage, slowdown in published["blocking_decompose_by_stage"].items():
        assert found.by_stage[int(stage)] == pytest.approx(slowdown, abs=0.01)
    for replica, slowdown in published["blocking_decompose_by_dp_rank"].items():
        assert found.by_replica[int(replica)] == pytest.approx(slowdown, abs=0.01)
    assert found.stage_index[3] == pytest.approx(1.22, abs=0.01)
    assert max(found.worker_share.values()) == pytest.approx(0.03, abs=0.005)


@real
def test_job_st_gets_a_layer_move(tmp_path: Path) -> None:
    (finding,) = diagnose_inputs([REAL / "trace-ST.parquet"]).findings
    assert (finding.kind, finding.stages) == ("imbalance", (3,))
    assert "forward 0.140 s against 0.06" in finding.cause
    assert "backward 0.205 s against 0.144 s" in finding.cause
    assert finding.evidence["compute_over_mean"] == pytest.approx(1.41, abs=0.005)
    assert finding.predicted_gain is not None
    assert 0.10 < finding.predicted_gain[1] < 1 - 1.843 / 2.173  # no more than without any straggler
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    (named,) = diagnose_inputs([REAL / "trace-ST.parquet"], read_setup(job)).findings
    # 8 layers a stage at 26 ms: the head costs 134 ms, so that 10 + 9 + 9 + 4 is the most even
    assert named.change == {"layout.stages": [["embed", "layers.0-9"], ["layers.10-18"], ["layers.19-27"],
                                              ["layers.28-31", "head"]]}  # fmt: skip


def _table(path: Path, forward: np.ndarray, steps: int = 4, batches: int = 6) -> Path:
    """A GPipe job without idle causes of its own: `forward` [replicas, stages] seconds, backward twice that."""
    rows: dict[str, list] = {
        name: [] for name in ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id")
    }
    replicas, stages = forward.shape

    def add(*cells: object) -> None:
        for name, cell in zip(rows, cells, strict=True):
            rows[name].append(cell)

    for step in range(steps):
        ends = []
        for d in range(replicas):
            free, arrived = np.zeros(stages), np.zeros((stages + 1, batches))
            for kind, order, factor in (("forward", range(stages), 1), ("backward", range(stages - 1, -1, -1), 2)):
                arrived = np.zeros((stages + 2, batches)) if kind == "forward" else arrived
                done = {}
                for b in range(batches):
                    before = 0.0
                    for s in order:
                        begin = max(free[s], before)
                        if before and s != order[0]:
                            add(d, s, step, f"{kind}-recv", free[s], begin - free[s] + 1e-4, b)
                            begin += 1e-4
                        cost = float(forward[d, s]) * factor
                        add(d, s, step, f"{kind}-compute", begin, cost, b)
                        free[s] = begin + cost
                        before = free[s]
                        if s != order[-1]:
                            add(d, s, step, f"{kind}-send", before, 1e-4, b)
                    done[b] = before
            ends.append(free.copy())
        last = np.max(ends, axis=0)
        for d in range(replicas):
            for s in range(stages):
                add(d, s, step, "grads-reduce-scatter", ends[d][s], last[s] - ends[d][s] + 0.01, 0)
    pq.write_table(pa.table(rows), path)
    return path


def test_an_even_job_has_no_finding(tmp_path: Path) -> None:
    found = diagnose_inputs([_table(tmp_path / "t.parquet", np.full((2, 4), 0.1))])
    assert not found.findings
    figures = next(iter(found.tables.values()))
    assert figures["slowdown_by_stragglers"] == pytest.approx(1, abs=0.01)  # type: ignore[index]


def test_a_heavy_stage_and_a_slow_worker_are_told_apart(tmp_path: Path) -> None:
    heavy = np.full((2, 4), 0.1)
    heavy[:, 2] = 0.16
    (finding,) = diagnose_inputs([_table(tmp_path / "heavy.parquet", heavy)]).findings
    assert (finding.kind, finding.stages) == ("imbalance", (2,))
    slow = np.full((2, 4), 0.1)
    slow[1, 1] = 0.16
    (finding,) = diagnose_inputs([_table(tmp_path / "slow.parquet", slow)]).findings
    assert (finding.kind, finding.stages) == ("slow rank", (1,))
    assert finding.evidence["replica"] == 1


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"step": [1], "stage": [0]}), file)
    with pytest.raises(InputError, match=r"columns are missing.*duration"):
        read_operations(file)
    good = _table(tmp_path / "good.parquet", np.full((1, 2), 0.1)).read_bytes()
    file.write_bytes(good[: len(good) // 2])
    with pytest.raises(InputError, match="Parquet file that cannot be read"):
        read_operations(file)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_tables_are_refused_in_a_line(tmp_path: Path, data: st.DataObject) -> None:
    good = tmp_path / "good.parquet"
    if not good.exists():
        _table(good, np.full((1, 2), 0.1), steps=2, batches=2)
    raw = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "damaged.parquet"
    file.write_bytes(raw)
    answers_or_says(lambda: diagnose_inputs([file]))
