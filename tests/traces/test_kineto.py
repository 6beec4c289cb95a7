"""The Kineto reader on generated traces with known contents."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright.basics.errors import InputError
from meshwright.timeline.columns import COLUMNS, Kind
from meshwright.timeline.intervals import total
from meshwright.traces.kineto import read_kineto


def kernel(name: str, ts: float, dur: float, stream: int = 7, cat: str = "kernel", **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
        "args": {"device": 0, "stream": stream, **args},
    }  # fmt: skip


def host(name: str, ts: float, dur: float, tid: int = 100, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}}


def write(path: Path, events: list[dict[str, Any]], **top: Any) -> Path:
    info = {key: top.pop(key) for key in ("backend", "rank", "world_size", "pg_config") if key in top}
    document = {"schemaVersion": 1, **({"distributedInfo": info} if info else {}), **top, "traceEvents": events}
    path.write_text(json.dumps(document, indent=2))
    return path


def test_kinds_times_and_collective_metadata(tmp_path: Path) -> None:
    ranks = [0, 2]
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        kernel("ampere_sgemm_128x64_nn", 1000.25, 10.5, correlation=1),
        kernel("Memcpy HtoD", 1020, 5, cat="gpu_memcpy", bytes=4096),
        kernel("Memset (Device)", 1030, 1, cat="gpu_memset", bytes=64),
        kernel("some_generated_name_0", 1040, 8, 13, **{
            "Collective name": "allreduce", "Process Group Ranks": json.dumps(ranks), "Seq": 41,
            "In msg nelems": 256, "dtype": "BFloat16",
        }),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 1050, 2, 13),
        kernel("my_fast_all_gather_kernel", 1060, 3),
        {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": 7, "ts": 1000, "dur": 500, "args": {}},
        host("ProfilerStep#12", 990, 200, cat="user_annotation"),
        host("cudaLaunchKernel", 995, 2, cat="cuda_runtime") | {"args": {"correlation": 1}},
    ]  # fmt: skip
    traces = read_kineto([write(tmp_path / "a.json", events, rank=2, world_size=4, baseTimeNanoseconds=10**18)])
    line = traces.timeline
    assert line.recorded == (2,)
    assert traces.world_size == 4
    by_name = {line.names[n]: k for k, n in enumerate(line.name)}
    kinds = {name: Kind(int(line.kind[k])) for name, k in by_name.items()}
    assert kinds["ampere_sgemm_128x64_nn"] is Kind.COMPUTE
    assert kinds["Memcpy HtoD"] is kinds["Memset (Device)"] is Kind.COPY
    assert kinds["allreduce"] is Kind.COMMUNICATION
    assert kinds["ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"] is Kind.COMMUNICATION
    assert kinds["my_fast_all_gather_kernel"] is Kind.UNCLASSIFIED
    assert "Context Sync" not in kinds
    first = by_name["ampere_sgemm_128x64_nn"]
    assert (line.start[first], line.end[first]) == (10_250, 20_750)  # ns after the earliest event, at 990 µs
    assert line.step[first] == 12
    reduce = by_name["allreduce"]
    assert line.groups[line.group[reduce]] == (0, 2)
    assert (line.sequence[reduce], line.size[reduce]) == (41, 512)
    assert line.size[by_name["Memcpy HtoD"]] == 4096
    text = "\n".join(traces.notes)
    assert "'my_fast_all_gather_kernel'" in text
    assert "3 of 4 kernels have no launch record" in text
    assert "no trace of 3 of 4 ranks: 0-1, 3" in text


def test_older_capital_categories_and_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "worker3.json", [kernel("k", 5, 2, cat="Kernel"), kernel("m", 9, 1, cat="Memcpy")])
    packed = tmp_path / "worker3.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    line = read_kineto([packed]).timeline
    assert line.recorded == (3,)
    assert sorted(line.kind.tolist()) == [Kind.COMPUTE, Kind.COPY]


def test_absolute_microseconds_keep_their_nanoseconds(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel("a", 11, 1), kernel("b", 22, 2)]})
    text = text.replace('"ts": 11', '"ts": 1712195495519689.047').replace('"ts": 22', '"ts": 1712195495519689.812')
    path = tmp_path / "rank0.json"
    path.write_text(text)
    assert read_kineto([path]).timeline.start.tolist() == [0, 765]


def test_base_times_put_ranks_on_one_clock(tmp_path: Path) -> None:
    write(tmp_path / "x.json", [kernel("a", 10, 1)], rank=0, world_size=3, baseTimeNanoseconds=5_000_000)
    write(tmp_path / "y.json", [kernel("a", 10, 1)], rank=2, world_size=3, baseTimeNanoseconds=5_004_000)
    traces = read_kineto([tmp_path])
    assert traces.timeline.start.tolist() == [0, 4000]
    assert traces.timeline.recorded == (0, 2)
    assert any("no trace of 1 of 3 ranks: 1" in note for note in traces.notes)


def test_ranks_are_never_guessed(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", [kernel("a", 1, 1)])
    two = write(tmp_path / "two.json", [kernel("a", 1, 1)])
    with pytest.raises(InputError, match=r"one\.json.*says no rank") as caught:
        read_kineto([one, two])
    assert len(caught.value.complaints) == 2
    alone = read_kineto([one])
    assert alone.timeline.recorded == (0,)
    assert any("no rank recorded" in note for note in alone.notes)
    first = write(tmp_path / "rank1.json", [kernel("a", 1, 1)], rank=0)
    again = write(tmp_path / "rank2.json", [kernel("a", 1, 1)], rank=0)
    with pytest.raises(InputError, match="rank 0 again"):
        read_kineto([first, again])
    believed = read_kineto([first])
    assert believed.timeline.recorded == (0,)
    assert any("the trace is believed" in note for note in believed.notes)


def test_a_cut_off_file_is_salvaged_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", [kernel(f"k{i}", 10.0 * i, 5) for i in range(50)], rank=0)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * 0.7)])
    traces = read_kineto([path])
    assert 30 <= len(traces.timeline) < 50
    assert any(f"cut off; {len(traces.timeline)} whole events" in note for note in traces.notes)
    kept = traces.timeline
    assert total(kept.start, kept.end) == 5000 * len(kept)


def test_a_cut_off_gzip_is_salvaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    events = [kernel(f"k{rng.integers(10**9)}", float(10 * i), 5) for i in range(500)]
    path = write(tmp_path / "rank0.json", events, rank=0)
    packed = gzip.compress(path.read_bytes())
    cut = tmp_path / "rank0.json.gz"
    cut.write_bytes(packed[: len(packed) // 2])
    traces = read_kineto([cut])
    assert 100 < len(traces.timeline) < 500
    assert any("compressed file is cut off" in note for note in traces.notes)


def test_control_characters_are_repaired_with_their_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", [kernel("bad#name", 1, 1), kernel("good", 3, 1)])
    data = path.read_bytes().replace(b"#", b"\x01")
    path.write_bytes(data)
    traces = read_kineto([path])
    assert len(traces.timeline) == 2
    assert any(f"control character at byte {data.index(1)}" in note for note in traces.notes)


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"hello": 1}')
    with pytest.raises(InputError, match="not a trace"):
        read_kineto([tmp_path / "a.json"])
    with pytest.raises(InputError, match="cannot be read"):
        read_kineto([tmp_path / "none.json"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.json"):
        read_kineto([tmp_path / "empty"])


def test_a_hatchet_tree_is_told_apart_from_a_trace_without_a_rank(tmp_path: Path) -> None:
    tree = [{"frame": {"name": "k", "type": "function"}, "metrics": {"time (ns)": 5}, "children": []}, {"CUDA": {}}]
    path = tmp_path / "proton.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(InputError, match="JSON of something else"):
        read_kineto([path])


def test_cpu_rank_operations_less_collectives(tmp_path: Path) -> None:
    events = [
        host("aten::linear", 0, 100), host("aten::addmm", 10, 80),  # nested: counted once
        host("autograd::engine::evaluate_function", 200, 100), host("_c10d_functional::wait_tensor", 250, 30),
        host("gloo:all_reduce", 220, 60, tid=101, cat="user_annotation"),
        host("ProfilerStep#3", 0, 400, cat="user_annotation"),
        host("module.py(3): forward", 0, 400, cat="python_function"),
    ]  # fmt: skip
    traces = read_kineto([write(tmp_path / "t.json", events, rank=1, world_size=2, backend="gloo")])
    line = traces.timeline
    compute, waits = line.select(line.kind == Kind.COMPUTE), line.select(line.kind == Kind.COMMUNICATION)
    assert total(compute.start, compute.end) == 170_000
    assert total(waits.start, waits.end) == 60_000
    assert set(compute.step.tolist()) == {3}
    assert any("a CPU rank" in note for note in traces.notes)


def test_a_gpu_rank_without_device_events_is_left_out(tmp_path: Path) -> None:
    for number, mark in enumerate([{"deviceProperties": [{"id": 0}]}, {"backend": "nccl"}]):
        path = write(tmp_path / f"rank{number}.json", [host("aten::mm", 0, 10)], rank=number, **mark)
        traces = read_kineto([path])
        assert traces.timeline.recorded == ()
        assert any("no device activity was recorded" in note for note in traces.notes)


def test_processes_beside_and_a_cache_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.traces.kineto_worker._WORTH", 0)
    monkeypatch.setattr("meshwright.traces.kineto_cache._SMALLEST", 0)
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "kept"))
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(3):
        rows = [kernel(f"k{k % 7}", 10.0 * k + rank, 5) for k in range(40)]
        write(folder / f"rank{rank}.json", rows, rank=rank, world_size=3)
    said: list[str] = []
    reads = [
        read_kineto([folder], workers=1, cache=False), read_kineto([folder], workers=2, said=said.append),
        read_kineto([folder], said=said.append),
    ]  # fmt: skip
    for traces in reads[1:]:
        assert traces.notes == reads[0].notes
        assert traces.events == 120
        for column in COLUMNS:
            assert np.array_equal(getattr(traces.timeline, column), getattr(reads[0].timeline, column))
    assert "read 3 of 3 traces" in said
    assert said[-1] == "3 of 3 traces from the cache"
    write(folder / "rank1.json", [kernel("other", 5, 5)], rank=1, world_size=3)
    again = read_kineto([folder])
    assert "other" in again.timeline.names
    (folder / "rank2.json").write_text('{"hello": 1}')
    with pytest.raises(InputError, match=r"rank2\.json: not a trace"):
        read_kineto([folder], workers=2, cache=False)
