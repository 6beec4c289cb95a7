"""Case H2: shapes or order differ inside one collective; a rank never comes; nodes miss at start-up."""

import json
import pickle
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.files.findings import Diagnosis

Calls = list[tuple[str, int]]


def _dumps(folder: Path, by_rank: dict[int, Calls], world: int, form: str = "pickle", ring: int = 1) -> Diagnosis:
    """Flight recorder dumps: calls numbered from 1; entries before number `ring` have been overwritten."""
    for rank, calls in by_rank.items():
        entries = [
            {"collective_seq_id": number, "profiling_name": f"nccl:{name}", "is_p2p": False, "pg_id": 0,
             "process_group": ("0", "default_pg"), "input_sizes": [[size]],
             "state": "completed" if number < len(calls) else "started"}
            for number, (name, size) in enumerate(calls, 1) if number >= ring
        ]  # fmt: skip
        dump = {"version": "2.9", "entries": entries, "pg_config": {
            "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}}  # fmt: skip
        file = folder / f"nccl_trace_rank_{rank}"
        file.write_bytes(pickle.dumps(dump) if form == "pickle" else json.dumps(dump).encode())
    return diagnose_inputs([folder])


def _order(count: int = 60) -> Calls:
    return [
        ("all_reduce", 1025 if k == 38 else 4096 + 7 * k) if k % 3 else ("all_gather", 512 + k) for k in range(count)
    ]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_h2_two_of_128_ranks_are_one_call_off(tmp_path: Path, form: str) -> None:
    calls = [*_order(38), ("all_reduce", 1025), ("all_reduce", 262_144), *_order(20)]
    shifted = calls[:38] + calls[39:]  # collective 39 was not called: from here on everything comes one early
    ranks = {rank: shifted if rank in (22, 110) else calls for rank in range(128)}
    (finding,) = _dumps(tmp_path, ranks, 128, form).findings
    assert finding.kind == "sizes differ in a collective"
    assert finding.ranks == (22, 110)
    assert finding.evidence["first_difference"] == 39
    assert "1,025 elements" in finding.cause
    assert "262,144 elements on ranks 22, 110" in finding.cause
    assert "a missing call before it on ranks 22, 110" in finding.cause
    assert finding.evidence["shift"] == {22: -1, 110: -1}


def test_h2_an_extra_call(tmp_path: Path) -> None:
    calls = _order(30)
    extra = [*calls[:20], ("all_reduce", 9), *calls[20:]]
    (finding,) = _dumps(tmp_path, {r: extra if r == 5 else calls for r in range(8)}, 8).findings
    assert (finding.ranks, finding.evidence["first_difference"], finding.evidence["shift"]) == ((5,), 21, {5: 1})


def test_h2_sizes_alone_do_not_shift(tmp_path: Path) -> None:
    calls = _order(30)
    wrong = [*calls[:20], (calls[20][0], 3), *calls[21:]]
    (finding,) = _dumps(tmp_path, {r: wrong if r == 2 else calls for r in range(8)}, 8).findings
    assert (finding.kind, finding.ranks) == ("sizes differ in a collective", (2,))
    assert "does not make them match" in finding.cause


def test_h2_order_mismatch(tmp_path: Path) -> None:
    calls = _order(30)
    swapped = [*calls[:12], calls[13], calls[12], *calls[14:]]
    (finding,) = _dumps(tmp_path, {r: swapped if r == 6 else calls for r in range(8)}, 8).findings
    assert (finding.kind, finding.ranks) == ("order of collectives differs", (6,))
    assert finding.evidence["first_difference"] == 13


def test_h2_a_tie_shows_both_sides(tmp_path: Path) -> None:
    calls = _order(30)
    other = [*calls[:20], (calls[20][0], 3), *calls[21:]]
    (finding,) = _dumps(tmp_path, {r: other if r % 2 else calls for r in range(8)}, 8).findings
    assert finding.ranks == ()
    assert finding.evidence["tied"]
    assert "ranks 0, 2, 4, 6" in finding.cause
    assert "ranks 1, 3, 5, 7" in finding.cause


def test_h2_a_rank_that_never_came_and_one_whose_dump_is_missing(tmp_path: Path) -> None:
    calls = _order(30)
    ranks = {r: calls[:-1] if r == 3 else calls for r in range(8) if r != 7}
    (finding,) = _dumps(tmp_path, ranks, 8).findings
    assert (finding.kind, finding.ranks) == ("rank never came", (3,))
    assert finding.evidence["sequence"] == 30
    assert finding.evidence["silent"] == [7]


def test_h2_all_to_all_may_differ_and_rings_forget(tmp_path: Path) -> None:
    free = [("all_to_all", 5 + r) for r in range(4)]
    ranks = {r: [("all_reduce", 8), free[r], ("all_reduce", 8)] for r in range(4)}
    found = _dumps(tmp_path, ranks, 4, ring=2)
    assert not found.findings
    assert any("no hang is seen" in note or "all ranks seen wait" in note for note in found.abstained)


WATCHDOG = (
    "[rank{r}]:[E1201 10:0{r}:00 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={s}, OpType=ALLREDUCE, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)


def test_h2_watchdog_lines_name_who_is_behind(tmp_path: Path) -> None:
    text = "".join(WATCHDOG.format(r=r, s=41, n=1024) for r in (0, 1, 3))
    text += "[rank2]:[E1201 PG.cpp:1834] [PG ID 0 PG GUID 0(default_pg) Rank 2] Timeout at NCCL work: 40, "
    text += "last enqueued NCCL work: 40, last completed NCCL work: 40.\n"
    log = tmp_path / "job.log"
    log.write_text(text)
    (finding,) = diagnose_inputs([log]).findings
    assert (finding.kind, finding.ranks) == ("rank never came", (2,))
    assert finding.evidence["waited_s"] == 600
    assert finding.share == 1


def test_h2_watchdog_lines_with_other_sizes(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(WATCHDOG.format(r=r, s=39, n=262_144 if r == 1 else 1025) for r in range(4)))
    (finding,) = diagnose_inputs([log]).findings
    assert (finding.kind, finding.ranks) == ("sizes differ in a collective", (1,))


def test_h2_missing_at_start_up_and_at_a_barrier(tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    log.write_text("DistStoreError: Timed out after 601 seconds waiting for clients. 6/8 clients joined.\n")
    (finding,) = diagnose_inputs([log]).findings
    assert finding.kind == "missing at start-up"
    assert (finding.evidence["missing"], finding.evidence["waited_s"]) == (2, 601)
    log.write_text("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms (gloo)\n")
    assert diagnose_inputs([log]).findings[0].ranks == (1, 3)


def test_h2_one_side_alone_does_not_accuse(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(WATCHDOG.format(r=0, s=41, n=8))
    (finding,) = diagnose_inputs([log]).findings
    assert (finding.kind, finding.ranks, finding.confidence) == ("hang", (), "low")


def test_h2_a_dump_that_could_run_code_or_says_no_rank(tmp_path: Path) -> None:
    file = tmp_path / "dump"
    file.write_bytes(pickle.dumps({"entries": [], "pg_config": {}, "nccl_version": "2"}))
    with pytest.raises(InputError, match="says no rank"):
        diagnose_inputs([file])
