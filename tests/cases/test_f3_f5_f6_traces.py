"""F3, F5 and F6: damaged strings, what belongs together over ranks, and evidence that is not there."""

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnosis.diagnose import diagnose_paths
from meshwright.traces.kineto import read_kineto
from meshwright.traces.match import match_collectives

GROUP = {"Process Group Name": "7", "dtype": "Float", "In msg nelems": 1 << 20, "Collective name": "allreduce"}


def kernel(name: str, ts: float, dur: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": stream, **args}}  # fmt: skip


def write(folder: Path, rank: int, events: list[dict[str, Any]], world: int = 4, **top: Any) -> Path:
    path = folder / f"rank{rank}.json"
    info = {"rank": rank, "world_size": world, "backend": "nccl"}
    path.write_text(json.dumps({"distributedInfo": info, **top, "traceEvents": events}))
    return path


def reduce(ts: float, dur: float, members: list[int], seq: int | None = None) -> dict[str, Any]:
    number = {} if seq is None else {"Seq": seq}
    return kernel("ncclDevKernel_AllReduce", ts, dur, 20, **GROUP, **number, **{"Process Group Ranks": str(members)})


def test_f3_a_control_character_and_times_of_the_epoch(tmp_path: Path) -> None:
    path = write(tmp_path, 0, [kernel("one#", 1.67e15, 5), kernel("two", 1.67e15 + 10, 5)], world=1)
    path.write_bytes(path.read_bytes().replace(b"#", b"\x01"))
    traces = read_kineto([path])
    at = path.read_bytes().index(1)
    assert any(f"rank0.json: control character at byte {at}" in note and "one" in note for note in traces.notes)
    assert traces.timeline.start.tolist() == [0, 10_000]
    assert traces.timeline.end.tolist() == [5_000, 15_000]


def test_f5_bases_are_added_before_ranks_are_compared(tmp_path: Path) -> None:
    write(tmp_path, 0, [reduce(100, 30, [0, 1], 5)], world=2, baseTimeNanoseconds=1_700_000_000_000_000_000)
    write(tmp_path, 1, [reduce(20, 10, [0, 1], 5)], world=2, baseTimeNanoseconds=1_700_000_000_000_100_000)
    line = read_kineto([tmp_path]).timeline
    assert line.start.tolist() == [0, 20_000]
    assert line.end.tolist() == [30_000, 30_000]


def test_f5_equal_names_of_groups_with_other_members_stay_apart(tmp_path: Path) -> None:
    for rank, members in enumerate(([0, 1], [0, 1], [2, 3], [2, 3])):
        write(tmp_path, rank, [reduce(10 + rank, 20 - rank, members, 0)])
    found = match_collectives(read_kineto([tmp_path]).timeline)
    assert sorted(c.group for c in found.whole) == [(0, 1), (2, 3)]
    assert not found.inferred


@pytest.mark.parametrize("numbered", [True, False])
def test_f5_a_missing_file_and_a_missing_event_are_named(tmp_path: Path, numbered: bool) -> None:
    for rank in (0, 1, 3):
        count = 1 if rank == 1 else 2
        rows = [reduce(100 * k + 10, 20, [0, 1, 2, 3], k if numbered else None) for k in range(count)]
        write(tmp_path, rank, rows)
    found = diagnose_paths([tmp_path])
    said = "\n".join(found.abstained)
    assert "no trace of 1 of 4 ranks: 2" in said
    assert "not seen equally often" in said
    assert "rank 1: " in said
    assert ("inferred" in said) is not numbered


def test_f6_no_collectives_although_four_ranks(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, [kernel("gemm", 10.0 * k, 9.9) for k in range(50)])
    found = diagnose_paths([tmp_path])
    assert any("no collectives found although the job has 4 ranks" in line for line in found.abstained)
    assert found.ranks == ()  # no figure of 0 % communication
    assert found.findings == ()
