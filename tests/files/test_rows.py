"""The reader of measured tables: typed fields, strict header, nonsense named and never fatal."""

import contextlib
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.files.rows import COLUMNS, Row, read_rows, read_table, row_of
from meshwright.files.rows_sense import nonsense

DATA = Path(__file__).parents[2] / "data" / "measurements"


def _file(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_projects_own_tables_read_whole() -> None:
    counts = {name: sum(1 for _ in read_rows(DATA / f"{name}.csv")) for name in ("measurements", "single_node_sweep")}
    assert counts == {"measurements": 1079, "single_node_sweep": 720}  # as their README says


def test_the_columns_are_those_of_the_published_tables() -> None:
    with (DATA / "measurements.csv").open(encoding="utf-8", newline="") as stream:
        assert set(next(csv.reader(stream))) == set(COLUMNS)


def test_fields_are_typed_and_empty_ones_none(tmp_path: Path) -> None:
    path = _file(tmp_path, "id,dp,sp,step_time_s,inferred,tp\nrun-1,4,true,0.25,vocab; heads,\n\n")
    (row,) = read_rows(path)
    assert row == Row(line=2, id="run-1", dp=4, sp=True, step_time_s=0.25, inferred=("vocab", "heads"))


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert row_of(["dp"], ["8.0"]).dp == 8


def test_unknown_and_doubled_columns_are_all_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_rows(_file(tmp_path, "id,micro_batchs,step_time,tp,tp\n"))
    text = str(caught.value)
    assert "'micro_batch'" in text
    assert "'step_time_s'" in text
    assert "twice" in text


@pytest.mark.parametrize("content", ["", "\n\n", ",,,\n"])
def test_a_file_without_a_header_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"empty|column"):
        read_rows(_file(tmp_path, content))


def test_a_missing_file_a_folder_and_bytes_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_rows(path)
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"id,dp\n\xff\xfe\x00,1\n")
    with pytest.raises(InputError, match="CSV"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("step_time_s", "0,25", "no number"), ("step_time_s", "-3", "negative"),
        ("step_time_s", "fast", "no number"), ("dp", "2.5", "whole"),
        ("step_time_s", "nan", "finite"), ("step_time_s", "inf", "finite"), ("hidden", "1e30", "sensible"),
        ("sp", "maybe", "neither"), ("tp", "0", "tp is 0"),
    ],
)  # fmt: skip
def test_nonsense_in_a_field_is_named(column: str, value: str, said: str) -> None:
    (problem,) = nonsense(row_of([column], [value]))
    assert column in problem
    assert said in problem


def test_degrees_that_do_not_give_the_devices_are_named() -> None:
    row = row_of(["gpus", "dp", "tp", "pp", "cp"], ["16", "1", "4", "8", "1"])
    assert nonsense(row) == ("dp 1 · tp 4 · pp 8 · cp 1 = 32, but gpus is 16",)


def test_a_step_time_in_milliseconds_is_named() -> None:
    header = ["gpus", "global_batch", "seq_len", "step_time_s", "tokens_per_s_per_gpu"]
    assert nonsense(row_of(header, ["8", "64", "2048", "2.0", "8192"])) == ()
    assert "another unit" in nonsense(row_of(header, ["8", "64", "2048", "2000", "8192"]))[0]


def test_a_batch_that_does_not_divide_and_more_than_the_peak_are_named() -> None:
    assert "no multiple" in nonsense(row_of(["global_batch", "micro_batch", "dp"], ["100", "3", "2"]))[0]
    assert "more than the peak" in nonsense(row_of(["mfu_percent"], ["140"]))[0]


def test_no_row_of_trust_a_or_b_is_called_nonsense() -> None:
    wrong = [row.name for row in read_rows(DATA / "measurements.csv") if row.trust in "AB" and nonsense(row)]
    assert wrong == []


def test_rows_that_their_source_calls_inconsistent_are_called_nonsense() -> None:
    rows = [row for row in read_rows(DATA / "measurements.csv") if row.consistency.startswith("INCONSISTENT")]
    assert rows
    assert all(nonsense(row) for row in rows)


@given(
    st.lists(st.text(max_size=20), min_size=1, max_size=5), st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5)
)
def test_no_record_is_fatal(record: list[str], header: list[str]) -> None:
    nonsense(row_of(header, record))


@given(st.binary(max_size=200))
def test_no_file_gives_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("rows") / "any.csv"
    path.write_bytes(b"id,dp\n" + content)
    with contextlib.suppress(InputError):
        for row in read_rows(path):
            nonsense(row)


def test_step_seconds_come_from_tokens_where_no_time_is_printed() -> None:
    header = ["gpus", "global_batch", "seq_len", "tokens_per_s_per_gpu"]
    assert row_of(header, ["8", "64", "2048", "8192"]).step_seconds == pytest.approx(2.0)


def test_csv_text_with_line_breaks_in_a_field(tmp_path: Path) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([["id", "notes"], ["a", "two\nlines"], ["b", "x"]])
    assert [row.notes for row in read_rows(_file(tmp_path, buffer.getvalue()))] == ["two\nlines", "x"]


def test_an_open_table_leaves_unknown_columns_out_and_names_the_nearest(tmp_path: Path) -> None:
    found = read_table(_file(tmp_path, "micro_batchs,dp,owner,dp_\n2,4,me,1\n"))
    assert found.unknown == (("micro_batchs", "micro_batch"), ("owner", None), ("dp_", None))  # dp itself is there
    assert list(found.rows) == [Row(line=2, dp=4)]


@pytest.mark.parametrize(("content", "said"), [("a,b\n1,2\n", "no column that is known"), ("id\tdp\n", "'\\\\t'")])
def test_an_open_table_needs_a_known_column(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_table(_file(tmp_path, content))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"layers": "20000"}, "more than 10,000"), ({"gpus": "1e9"}, "more than 10,000,000"),
        ({"global_batch": "8000000", "dp": "1", "pp": "2"}, "passes through a stage"),
    ],
)  # fmt: skip
def test_counts_far_beyond_anything_trained_are_named(values: dict[str, str], said: str) -> None:
    assert said in nonsense(row_of(list(values), list(values.values())))[0]
