"""Real public traces against their published figures; skipped where the folder of traces is not beside the project."""

import gzip
import json
import tarfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from meshwright.diagnosis.communication import waited
from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.diagnosis.split import split_window
from meshwright.diagnosis.traced import traced
from meshwright.timeline.columns import Kind, Timeline
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
    job = traced(line, traces.launch)
    assert job is not None
    waits = waited(job.timeline, job.collectives)
    assert [round(waits[rank] * 1e6) for rank in range(8)] == [5581, 11119, 3275, 9557, 6370, 6034, 3341, 1529]
    assert sum(job.collectives.last == 7) == 5
    assert len(job.collectives) == 8
    assert job.clocks.residual_s is not None
    assert 1e-6 <= job.clocks.residual_s <= 7e-6  # ends of one collective agree within 1-7 µs
    found = diagnose_paths([folder])
    bound, late = found.findings
    assert bound.kind == "host bound"
    assert "batch is too small" in bound.cause
    assert late.kind == "slow rank"
    assert late.ranks == (7,)
    assert all(split.compute_s < 0.1 * split.window_s for split in found.ranks)
    assert len({split.window_s for split in found.ranks}) == 1  # one common window for all ranks
    assert any("the schedule is not known" in text for text in found.abstained)


def recomputing(path: Path, line: Timeline) -> list[tuple[int, int]]:
    """When the host ran the recomputation of activations, in the timeline's nanoseconds."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    copies = [event["ts"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    zero = int(min(copies) * 1000) - int(line.start[line.kind != Kind.HOST].min())
    spans = [event for event in events if str(event.get("name")).endswith(": recompute_fn")]
    return [(int(e["ts"] * 1000) - zero, int((e["ts"] + e["dur"]) * 1000) - zero) for e in spans]


def test_resnet_with_kernels_launched_before_recording() -> None:
    path = TRACES / "tracelens" / "mi300" / "resnet_act_checkpoint.json.gz"
    traces = read_kineto([path])
    assert any("757 of 2995 kernels have no launch record" in note for note in traces.notes)
    line = traces.timeline
    device = line.kind != Kind.HOST
    linked = device & (traces.launch[:, 0] >= 0)
    start, end = int(line.start[linked].min()), int(line.end[linked].max())
    assert (end - start) / 1e6 == pytest.approx(56.518, abs=0.001)
    # the published table leaves out memsets, and kernels that were launched while activations were recomputed
    again = np.zeros(len(line), np.bool_)
    for first, last in recomputing(path, line):
        again |= (traces.launch[:, 0] >= first) & (traces.launch[:, 0] <= last)
    assert (again & linked & (line.kind == Kind.COMPUTE)).sum() == 591
    memset = np.array([name.startswith("Memset") for name in line.names])[line.name]
    split = split_window(line.select(linked & ~again & ~memset), 0, start, end)
    assert 100 * split.compute / (end - start) == pytest.approx(26.74, abs=0.01)
    assert 100 * split.exposed_comm / (end - start) == pytest.approx(67.84, abs=0.01)
    assert 100 * split.exposed_copy / (end - start) == pytest.approx(2.80, abs=0.01)
    assert 100 * split.idle / (end - start) == pytest.approx(2.62, abs=0.01)
    assert split.comm / 1e6 == pytest.approx(47.200, abs=0.001)
    with_it = split_window(line.select(linked), 0, start, end)
    assert (with_it.compute - split.compute) / 1e6 == pytest.approx(4.122, abs=0.001)
    reduces = line.select((line.size == 2 * 8816192) & (line.kind == Kind.COMMUNICATION))
    assert (reduces.end - reduces.start).sum() / 1e3 == pytest.approx(26798.24, abs=0.01)
    assert line.groups[int(reduces.group[0])] == tuple(range(8))
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
