"""Real public traces against their published figures; skipped where the folder of traces is not beside the project."""

import tarfile
from pathlib import Path

import pytest

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.diagnosis.split import split_window
from meshwright.timeline.columns import Kind
from meshwright.traces.kineto import read_kineto

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="no folder of public traces (../shared/traces)")

# rank: span µs, idle %, compute %, neither %, exposed communication µs
DLRM = {
    0: (13009, 49.34, 7.95, 42.71, 5537), 1: (18749, 34.28, 6.65, 59.07, 11056), 2: (11350, 62.08, 9.41, 28.51, 3217),
    3: (18853, 43.20, 6.58, 50.22, 9450), 4: (16589, 53.57, 6.79, 39.64, 6550), 5: (16392, 55.64, 6.35, 38.01, 6211),
    6: (11410, 61.80, 9.21, 28.99, 3289), 7: (10967, 75.75, 9.66, 14.59, 1580),
}  # fmt: skip


def test_dlrm_on_eight_gpus(tmp_path: Path) -> None:
    with tarfile.open(TRACES / "param-dlrm-8rank" / "dlrm_kineto.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    traces = read_kineto([folder])
    line = traces.timeline
    assert line.recorded == tuple(range(8))
    assert not any("unclassified" in note for note in traces.notes)
    for rank, (span, idle, compute, neither, exposed) in DLRM.items():
        mine = (line.rank == rank) & (line.kind != Kind.HOST)
        start, end = int(line.start[mine].min()), int(line.end[mine].max())
        split = split_window(line, rank, start, end)
        assert (end - start) / 1000 == pytest.approx(span, abs=1)
        assert 100 * split.idle / (end - start) == pytest.approx(idle, abs=0.01)
        assert 100 * split.compute / (end - start) == pytest.approx(compute, abs=0.01)
        assert 100 * (split.exposed_comm + split.exposed_copy) / (end - start) == pytest.approx(neither, abs=0.01)
        assert split.exposed_comm / 1000 == pytest.approx(exposed, abs=1)
    found = diagnose_paths([folder])
    assert len({split.window_s for split in found.ranks}) == 1  # one common window for all ranks
    assert any("the schedule is not known" in text for text in found.abstained)


def test_resnet_with_kernels_launched_before_recording() -> None:
    traces = read_kineto([TRACES / "tracelens" / "mi300" / "resnet_act_checkpoint.json.gz"])
    assert any("757 of 2995 kernels have no launch record" in note for note in traces.notes)
    line = traces.timeline
    device = line.kind != Kind.HOST
    assert (line.end[device].max() - line.start[device].min()) / 1e6 == pytest.approx(86.568, abs=0.001)


def test_a_rank_of_a_gpu_job_without_device_activity() -> None:
    found = diagnose_paths([TRACES / "hta" / "rank_non_gpu" / "rank_non_gpu.json.gz"])
    assert found.ranks == ()
    assert any("no device activity was recorded" in text for text in found.abstained)


def test_absolute_times_keep_their_nanoseconds() -> None:
    name = "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
    line = read_kineto([TRACES / "hta" / "ns_resolution_trace" / name]).timeline
    kernels = line.select(line.kind == Kind.COMPUTE)
    assert len({int(start) % 1000 for start in kernels.start}) > 500
