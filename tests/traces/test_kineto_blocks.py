"""Reading block by block gives what reading whole gives, wherever blocks end and whatever is damaged."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.traces.blocks import text_blocks
from meshwright.traces.document import Event
from meshwright.traces.kineto import read_kineto
from meshwright.traces.kineto_blocks import EventStream

NASTY = ['a},{"ph":"X"', "]},{[", 'quote" and \\ ', "},\n  {", "ünï", "", '\\"},{', "traceEvents: ["]
args = st.fixed_dictionaries({}, optional={
    "correlation": st.integers(0, 9), "Input Dims": st.just([[[1, 2]], [], [{"a": 1}, {"b": [2]}]]),
    "stack": st.sampled_from(NASTY),
})  # fmt: skip
events = st.lists(
    st.fixed_dictionaries({
        "ph": st.just("X"), "cat": st.sampled_from(["kernel", "cpu_op"]), "name": st.sampled_from(NASTY),
        "ts": st.integers(0, 99), "dur": st.floats(0, 9), "args": args,
    }), max_size=30,
)  # fmt: skip


def names(blocks: list[list[Event]]) -> list[tuple[Any, float]]:
    return [(event.name, event.ts) for block in blocks for event in block]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events, st.integers(40, 900), st.sampled_from([None, 1, 2]), st.booleans(), st.booleans())
def test_blocks_of_any_size_hold_the_same_events(
    tmp_path: Path, rows: list[dict[str, Any]], size: int, indent: int | None, packed: bool, bare: bool
) -> None:
    document = rows if bare else {
        "schemaVersion": 1, "distributedInfo": {"rank": 3, "pg_config": [{"pg_name": "0"}, {"pg_name": "1"}]},
        "traceEvents": rows, "traceName": "x]}", "notes": [{"a": []}, {"b": "]"}], "baseTimeNanoseconds": 77,
    }  # fmt: skip
    text = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text[:99]) + gzip.compress(text[99:]) if packed else text)
    stream = EventStream(path, size)
    assert names(list(stream.blocks())) == [(row["name"], row["ts"]) for row in rows]
    assert (stream.seen, stream.skipped, stream.notes) == (len(rows), 0, [])
    if not bare:
        assert stream.header.base_ns == 77
        assert stream.header.distributed is not None
        assert stream.header.distributed.rank == 3


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events.filter(lambda rows: len(rows) > 2), st.integers(40, 900), st.floats(0.2, 0.98))
def test_a_file_cut_anywhere_keeps_its_whole_events(
    tmp_path: Path, rows: list[dict[str, Any]], size: int, share: float
) -> None:
    text = json.dumps({"traceEvents": rows}).encode()
    end = max(len(b'{"traceEvents": ['), int(len(text) * share))
    path = tmp_path / "t.json"
    path.write_bytes(text[:end])
    stream = EventStream(path, size)
    found = names(list(stream.blocks()))
    at, whole = len(b'{"traceEvents": ['), 0
    for row in rows:
        at += len(json.dumps(row).encode())
        if at > end:
            break
        whole += 1
        at += 2
    assert found == [(row["name"], row["ts"]) for row in rows[:whole]]
    assert any(f"cut off; {whole} whole events were read" in note for note in stream.notes)


def test_one_damaged_event_costs_itself_alone(tmp_path: Path) -> None:
    rows = [{"ph": "X", "cat": "kernel", "name": f"k{k}", "ts": k, "dur": 1} for k in range(200)]
    text = json.dumps({"traceEvents": rows})
    damaged = text.replace('"ts": 90,', '"ts": NaN,').replace('"ts": 120,', '"ts": "soon",')
    path = tmp_path / "rank0.json"
    path.write_text(damaged)
    for size in (500, 1 << 20):
        stream = EventStream(path, size)
        found = [name for name, _ in names(list(stream.blocks()))]
        assert found == [f"k{k}" for k in range(200) if k not in (90, 120)]
        assert stream.skipped == 2
        at = damaged.index('{"ph": "X", "cat": "kernel", "name": "k90"')
        assert any(f"at byte {at}" in note for note in stream.notes)


def test_a_control_character_is_named_with_file_byte_and_event_in_a_later_block(tmp_path: Path) -> None:
    rows = [{"ph": "X", "cat": "kernel", "name": f"k{k}", "ts": 1.67e15 + k, "dur": 1} for k in range(300)]
    text = json.dumps({"traceEvents": rows}).replace("k250", "k\x01250").encode()
    path = tmp_path / "rank0.json"
    path.write_bytes(text)
    stream = EventStream(path, 2000)
    assert sum(len(block) for block in stream.blocks()) == 300
    (note,) = stream.notes
    assert note.startswith("rank0.json")
    assert f"byte {text.index(1)} (0x01)" in note
    assert "250" in note
    assert read_kineto([path]).timeline.start[0] == 0  # relative to the first event


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b"{", b"null", b"[" * 1_000_000, b'{"a":' * 100_000, b'{"traceEvents": 5}', b"\x1f\x8b\x08",
     b"\x00" * 99, b'{"traceEvents": [' + b"[" * 100_000, b'{"hello": 1}', b"NaN"],
)  # fmt: skip
def test_what_is_no_trace_is_an_error_of_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    try:
        traces = read_kineto([path])
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert len(traces.timeline) == 0
        assert traces.notes


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 300), st.integers(0, 3))
def test_damage_of_any_kind_never_breaks_the_reader(tmp_path: Path, junk: bytes, at: int, base: int) -> None:
    rows = [{"ph": "X", "cat": "kernel", "name": "k", "ts": k, "dur": 1, "args": {"stream": 7}} for k in range(5)]
    text = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": rows}).encode()
    text = [text, gzip.compress(text), json.dumps(rows).encode(), b""][base]
    path = tmp_path / "t.json"
    path.write_bytes(text[:at] + junk + text[at + len(junk) :])
    try:
        read_kineto([path])
    except InputError as error:
        assert str(error)  # noqa: PT017


def test_gzip_is_unpacked_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "z.gz"
    path.write_bytes(gzip.compress(bytes(3_000_000)))  # a thousand to one
    sizes = [len(piece) for piece in text_blocks(path, [], 65536)]
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= 65536
