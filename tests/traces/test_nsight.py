"""Nsight Systems exports as a Timeline: real ones against published figures, made ones for each trap."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import KERNEL, RUNTIME, STRINGS, Tables, answers_or_says, export, pid

from meshwright.basics.errors import InputError
from meshwright.diagnosis.split import split_window
from meshwright.timeline.columns import Kind
from meshwright.traces.nsight import NEVER, read_nsight

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "nsys-sqlite"
real = pytest.mark.skipif(not REAL.is_dir(), reason="no folder of public traces (../shared/traces)")


@real
@pytest.mark.parametrize(
    ("gpu", "span", "compute", "nccl", "idle"), [(0, 299.85, 253.69, 17.17, 28.99), (1, 298.66, 256.10, 8.23, 34.34)]
)
def test_two_gpus_that_talk_on_the_stream_they_compute_on(
    gpu: int, span: float, compute: float, nccl: float, idle: float
) -> None:
    traces = read_nsight([REAL / "mfu_2gpu_before.sqlite"])
    kernels = traces.timeline.select(traces.timeline.kind != Kind.COPY)  # the published figures are of kernels alone
    own = kernels.rank == gpu
    start, end = int(kernels.start[own].min()), int(kernels.end[own].max())
    split = split_window(kernels, gpu, start, end)
    figures = (end - start, split.compute, split.comm, split.idle)
    assert [round(value / 1e6, 2) for value in figures] == [span, compute, nccl, idle]
    assert split.comm == split.exposed_comm  # nothing is covered: one shared stream
    calls = traces.tables[str(REAL / "mfu_2gpu_before.sqlite")]["nccl_calls"]
    assert (calls["ncclSend"], calls["ncclRecv"], calls["ncclGroupStart"]) == (132, 132, 66)  # type: ignore[index]
    assert traces.tables[str(REAL / "mfu_2gpu_before.sqlite")]["schema"] == "3.25.0"


@real
def test_two_processes_without_collectives() -> None:
    line = read_nsight([REAL / "h100_2gpu_1s.sqlite"]).timeline
    kernels = line.select((line.kind != Kind.COPY) & (line.rank == 0))
    start, end = int(kernels.start.min()), int(kernels.end.max())
    split = split_window(kernels, 0, start, end)
    assert round(split.compute / 1e6, 1) == 22.4
    assert round((end - start) / 1e6, 1) == 960.5
    assert round(100 * split.idle / (end - start), 1) == 97.7
    assert not (line.kind == Kind.COMMUNICATION).any()


def test_names_come_from_the_strings_and_steps_from_text_or_its_id(tmp_path: Path) -> None:
    nvtx = ("start", "end", "eventType", "text", "textId", "globalTid")
    file = export(
        tmp_path / "a.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL_V3": (
                KERNEL,
                [(10, 20, 0, 7, 1, pid(5), 1, 1), (30, 40, 0, 9, 2, pid(5), 2, 2)],
            ),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(1, 2, 1, pid(5), 1), (25, 26, 2, pid(5), 1)]),
            "StringIds": STRINGS,
            "NVTX_EVENTS": (nvtx, [(0, 5, 59, "iteration 7", None, pid(5)), (24, 27, 59, None, 4, pid(5))]),
        },
    )
    traces = read_nsight([file])
    line = traces.timeline
    assert [line.names[name] for name in line.name] == ["gemm", "ncclDevKernel_AllReduce"]
    assert line.kind.tolist() == [Kind.COMPUTE, Kind.COMMUNICATION]
    assert line.step.tolist() == [7, 8]
    assert line.start.tolist() == [0, 20]
    assert traces.launched.tolist() == [-9, 15]


def test_a_stream_belongs_to_its_process_and_a_launch_to_its_process(tmp_path: Path) -> None:
    rows = [(10, 20, 0, 7, 1, pid(5), 1, 1), (12, 22, 0, 7, 1, pid(6), 1, 1)]
    file = export(
        tmp_path / "a.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, rows), "StringIds": STRINGS,
            "CUPTI_ACTIVITY_KIND_RUNTIME": (RUNTIME, [(3, 4, 1, pid(5) | 77, 1), (6, 7, 1, pid(6) | 78, 1)]),
        },
    )  # fmt: skip
    traces = read_nsight([file])
    assert traces.timeline.rank.tolist() == [0, 1]  # two processes that both call their GPU 0
    assert len(np.unique(traces.timeline.stream)) == 2
    assert traces.launched.tolist() == [-7, -4]
    assert any("process 5" in note and "process 6" in note for note in traces.notes)


def test_what_was_not_captured_is_said(tmp_path: Path) -> None:
    columns = tuple(column for column in KERNEL if column != "globalPid")
    rows = [(10, 20, 0, 7, 1, 1, 1), (20, 15, 0, 7, 2, 1, 1)]
    file = export(
        tmp_path / "a.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": (columns, rows), "StringIds": STRINGS}, version="9.1.0"
    )
    traces = read_nsight([file])
    assert traces.launched.tolist() == [NEVER]
    said = " ".join(traces.notes)
    assert "launches were not captured" in said
    assert "1 spans that end before they start" in said
    assert "schema 9.1.0 is not one that was tried" in said


def test_an_export_without_gpu_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no GPU work was captured"):
        read_nsight([export(tmp_path / "a.sqlite", {"StringIds": STRINGS})])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_are_refused_in_a_line(tmp_path: Path, data: st.DataObject) -> None:
    good = export_bytes(tmp_path)
    at = data.draw(st.integers(16, len(good) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=64))
    cut = data.draw(st.booleans())
    file = tmp_path / "damaged.sqlite"
    file.write_bytes(good[:at] if cut else good[:at] + damage + good[at + len(damage) :])
    answers_or_says(lambda: read_nsight([file]))


def export_bytes(folder: Path) -> bytes:
    file = folder / "good.sqlite"
    if not file.exists():
        export(file, {"CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [(10, 20, 0, 7, 1, pid(5), 1, 1)]), "StringIds": STRINGS})
    return file.read_bytes()


def test_files_of_two_hosts_share_a_clock_by_their_sessions(tmp_path: Path) -> None:
    files = []
    for host, utc in enumerate((1_000_000, 1_000_500)):
        tables: Tables = {
            "CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [(100, 200, 0, 7, 1, pid(5), 1, 1)]), "StringIds": STRINGS,
            "TARGET_INFO_SESSION_START_TIME": (("utcEpochNs",), [(utc,)]),
        }  # fmt: skip
        files.append(export(tmp_path / f"host{host}.sqlite", tables))
    traces = read_nsight(files)
    assert traces.timeline.rank.tolist() == [0, 1]
    assert traces.timeline.start.tolist() == [0, 500]
    assert any("shown as ranks 1-1" in note for note in traces.notes)
    kernels = {"CUPTI_ACTIVITY_KIND_KERNEL": (KERNEL, [(1, 2, 0, 7, 1, pid(5), 1, 1)])}
    files.append(export(tmp_path / "host2.sqlite", kernels))
    assert any("its clock may differ" in note for note in read_nsight(files).notes)
