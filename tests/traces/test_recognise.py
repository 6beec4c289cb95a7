"""Inputs are told by their content; what cannot be read is refused in a line that says what to do."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import STRINGS, answers_or_says, block, export, segment, snapshot

from meshwright.basics.errors import InputError
from meshwright.traces.recognise import Input, kind_of, recognise

TEXTS = {
    Input.KINETO: '{"schemaVersion": 1, "traceEvents": []}',
    Input.PROTON: '[{"children": [], "frame": {"name": "ROOT"}, "metrics": {"count": 0}}, {}]',
    Input.RECORDER: '{"entries": [{"collective_seq_id": 1}], "pg_config": {}, "nccl_version": "2.27"}',
    Input.TIMING: "step,rank,phase,ms\n1,0,step,100\n",
    Input.THROUGHPUT: "devices,nodes,tokens_per_s\n8,1,1000\n",
    Input.ROUTING: "step,layer,rank,expert,tokens\n1,0,0,0,7\n",
    Input.LOG: "[E1 ProcessGroupNCCL.cpp] [Rank 3] Watchdog caught collective operation timeout\n",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("packed", [False, True])
def test_by_content_whatever_the_name(tmp_path: Path, kind: Input, packed: bool) -> None:
    file = tmp_path / "anything.txt"
    text = TEXTS[kind].encode()
    file.write_bytes(gzip.compress(text) if packed else text)
    assert kind_of(file) is kind


def test_databases_and_pickles(tmp_path: Path) -> None:
    assert kind_of(export(tmp_path / "x.json", {"StringIds": STRINGS})) is Input.NSIGHT
    assert kind_of(snapshot(tmp_path / "y.json", [segment(1, [block(0, 1, True)])])) is Input.SNAPSHOT


def _database(path: Path, *tables: str) -> Path:
    with closing(sqlite3.connect(path)) as made:
        for table in tables:
            made.execute(f"create table {table} (a)")
    return path


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    report = tmp_path / "my run.nsys-rep"
    report.write_bytes(b"\x01\x02NVIDIA")
    with pytest.raises(InputError, match=r"nsys export --type sqlite .*--output my run\.sqlite my run\.nsys-rep"):
        kind_of(report)
    old = _database(tmp_path / "old.db", "StringTable", "CUPTI_ACTIVITY_KIND_MARKER")
    with pytest.raises(InputError, match=r"nvprof.*8\.0 and later.*Nsight Systems"):
        kind_of(old)
    with pytest.raises(InputError, match="SQLite file of something else"):
        kind_of(_database(tmp_path / "other.db", "people"))
    for name, content, words in (
        ("empty", b"", "empty"), ("zeros", bytes(4096), "zero bytes"), ("other.json", b'{"a": 1}', "JSON of something"),
        ("cut.json", b'{"a": [1, 2', "cut off"), ("noise", bytes(range(1, 256)) * 9, "no known kind"),
        ("broken.gz", b"\x1f\x8b\x08\x00garbage", "cannot be read"), ("nested", b"[" * 10**6, "something else"),
        ("table.csv", b"a,b,c\n1,2,3\n", "neither a table nor a log"),
        ("text", b"hello world\n", "nothing that is known"),
        ("half.sqlite", b"SQLite format 3\x00" + bytes(40), "SQLite"),
    ):  # fmt: skip
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(InputError, match=words) as refusal:
            kind_of(file)
        assert "\n" not in str(refusal.value)


def test_a_locked_database_is_refused_not_waited_for(tmp_path: Path) -> None:
    file = export(tmp_path / "x.sqlite", {"StringIds": STRINGS})
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        with pytest.raises(InputError, match="locked"):
            kind_of(file)


def test_a_log_that_says_only_at_its_end_how_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "out.txt"
    log.write_text("epoch, and so on\n" * 9000 + "[rank1]: Watchdog caught collective operation timeout\n")
    assert kind_of(log) is Input.LOG


def test_folders_and_globs(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("free\n")
    (tmp_path / "a.csv").write_text(TEXTS[Input.TIMING])
    (tmp_path / "b.csv").write_text(TEXTS[Input.THROUGHPUT])
    found = recognise([tmp_path, tmp_path / "*.csv"])
    assert [one.kind for one in found.files] == [Input.TIMING, Input.THROUGHPUT]
    assert "LICENSE" in found.notes[0]
    with pytest.raises(InputError, match="nothing matches"):
        recognise([tmp_path / "*.pickle"])
    empty = tmp_path / "none"
    empty.mkdir()
    with pytest.raises(InputError, match="no trace, table, snapshot or log in this folder"):
        recognise([empty])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_of_a_kind_or_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "any"
    file.write_bytes(content)
    answers_or_says(lambda: kind_of(file))
