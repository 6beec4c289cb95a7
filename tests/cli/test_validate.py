"""`meshwright validate`: tables of measured rows, whose answers are known by hand."""

import contextlib
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cli.main import run
from meshwright.files.rows import COLUMNS

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py

BASE = {
    "id": "r", "source": "our log", "framework": "Megatron-LM", "date": "2024-06", "model_name": "small",
    "layers": "8", "hidden": "1024", "heads": "16", "vocab": "51200", "seq_len": "2048", "gpu": "A100-80GB",
    "gpus": "8", "gpus_per_node": "8", "tp": "1", "pp": "1", "micro_batch": "1", "global_batch": "64",
    "recompute": "none", "zero_stage": "1", "precision": "bf16", "dp": "8",
}  # fmt: skip
LAYOUTS = [{"dp": "8"}, {"dp": "4", "tp": "2"}, {"dp": "4", "pp": "2"}, {"dp": "8", "recompute": "full"}]
PREDICTIONS = (
    "id,predicted_step_time_s,predicted_tokens_per_s_per_gpu,predicted_peak_memory_gib,low_step_time_s,"
    "high_step_time_s,skipped"
)


def table(folder: Path, rows: list[dict[str, str]], name: str = "rows.csv") -> Path:
    """A CSV file with every column that a row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    (folder / name).write_bytes(text.getvalue().encode())
    return folder / name


def ended(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def answer(*arguments: str) -> dict[str, Any]:
    code, out, err = ended("validate", *arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def predictions(folder: Path, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    path = table(folder, rows, "unmeasured.csv")
    answer(str(path), "-o", str(folder / "predictions.csv"))
    with (folder / "predictions.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def measured(folder: Path, factors: list[float], layouts: list[dict[str, str]] = LAYOUTS) -> Path:
    """A table whose step times are so many times the predicted ones."""
    rows = [{**BASE, **layout, "id": f"r{n}"} for n, layout in enumerate(layouts)]
    found = predictions(folder, rows)
    times = [float(one["predicted_step_time_s"]) * factor for one, factor in zip(found, factors, strict=True)]
    return table(folder, [{**row, "step_time_s": repr(time)} for row, time in zip(rows, times, strict=True)])


def test_errors_against_arithmetic_by_hand(tmp_path: Path) -> None:
    # predicted over measured: 1/1.25 = -20 %, 1/0.8 = +25 %, 1/1.6 = -37.5 %, exact
    found = answer(str(measured(tmp_path, [1.25, 0.8, 1.6, 1.0])))
    step = found["step_time"]
    assert (found["rows"], found["scored"], step["rows"], step["configurations"]) == (4, 4, 4, 4)
    assert step["median_error"] == pytest.approx((0.20 + 0.25) / 2, abs=1e-4)
    assert step["p90_error"] == pytest.approx(0.25 + 0.7 * 0.125, abs=1e-4)  # 0.7 of the way from third to fourth
    assert step["bias"] == pytest.approx(-0.10, abs=1e-4)
    assert step["worst_error"] == pytest.approx(0.375, abs=1e-4)
    assert found["by_source"] == {"our log": step}
    assert found["by_gpu"] == {"A100-80GB-SXM": step}
    assert set(found["by_parallelism"]) == {"data", "data + tensor", "data + pipeline"}
    assert found["worst"][0]["id"] == "r2"
    assert sum(found["worst"][0]["terms"].values()) == pytest.approx(1, abs=0.02)


def test_coverage_of_the_stated_range(tmp_path: Path) -> None:
    (one,) = predictions(tmp_path, [BASE])
    low, predicted, high = (
        float(one[name]) for name in ("low_step_time_s", "predicted_step_time_s", "high_step_time_s")
    )
    assert low < predicted < high
    times = [low * 1.01, predicted, high * 0.99, high * 1.01, low * 0.99]
    rows = [{**BASE, "id": f"r{n}", "step_time_s": repr(time)} for n, time in enumerate(times)]
    assert answer(str(table(tmp_path, rows)))["step_time"]["within_range"] == pytest.approx(3 / 5)


def test_ranking_and_regret(tmp_path: Path) -> None:
    rows = [{**BASE, **layout, "id": f"r{n}"} for n, layout in enumerate(LAYOUTS)]
    found = predictions(tmp_path, rows)
    order = sorted(range(4), key=lambda n: float(found[n]["predicted_step_time_s"]))
    # the layout predicted fastest was measured second best, 7 % behind; then as predicted
    base = float(found[order[0]]["predicted_step_time_s"])
    times = dict(zip(order, (1.07 * base, base, 1.2 * base, 1.3 * base), strict=True))
    path = table(tmp_path, [{**row, "step_time_s": repr(times[n])} for n, row in enumerate(rows)])
    ranking = answer(str(path))["ranking"]
    assert (ranking["groups"], ranking["layouts"]) == (1, 4)
    assert ranking["mean_regret"] == ranking["worst_regret"] == pytest.approx(0.07, abs=1e-6)
    assert ranking["kendall_tau"] == pytest.approx(4 / 6)
    assert ranking["best_found"] == 0
    assert ranking["each"][0]["best_measured_s"] == pytest.approx(base)
    times[order[0]] = 1.02 * base
    path = table(tmp_path, [{**row, "step_time_s": repr(times[n])} for n, row in enumerate(rows)])
    assert answer(str(path))["ranking"]["mean_regret"] == 0


def test_predictions_are_a_line_a_row_in_order(tmp_path: Path) -> None:
    rows = [
        {**BASE, "id": "b"},
        {**BASE, "id": "", "dp": "3"},
        {**BASE, "id": "a", "gpu": "Z9000"},
        {**BASE, "id": "c"},
    ]
    path = table(tmp_path, rows)
    answer(str(path), "-o", str(tmp_path / "out.csv"))
    text = (tmp_path / "out.csv").read_text()
    assert text.splitlines()[0] == PREDICTIONS
    found = list(csv.DictReader(io.StringIO(text)))
    assert [one["id"] for one in found] == ["b", "line 3", "a", "c"]
    assert [bool(one["skipped"]) for one in found] == [False, True, True, False]
    assert "gpus is 8" in found[1]["skipped"]
    assert found[1]["predicted_step_time_s"] == ""
    step, rate = (float(found[0][name]) for name in ("predicted_step_time_s", "predicted_tokens_per_s_per_gpu"))
    assert step * rate * 8 == pytest.approx(64 * 2048, rel=1e-4)
    assert float(found[0]["low_step_time_s"]) < step < float(found[0]["high_step_time_s"])
    assert 1 < float(found[0]["predicted_peak_memory_gib"]) < 80


def test_the_order_of_columns_and_empty_ones_do_not_matter(tmp_path: Path) -> None:
    (plain,) = predictions(tmp_path, [BASE])
    (turned,) = predictions(tmp_path, [dict(reversed([*BASE.items(), *((c, "") for c in COLUMNS if c not in BASE)]))])
    assert plain == turned


def test_unknown_columns_are_left_out_and_named_in_a_line(tmp_path: Path) -> None:
    path = table(tmp_path, [{**BASE, "step_time": "0.3", "favourite_colour": "blue"}])
    found = answer(str(path))
    assert found["unknown_columns"] == [
        {"column": "step_time", "nearest": "step_time_s"}, {"column": "favourite_colour", "nearest": None},
    ]  # fmt: skip
    _, out, _ = ended("validate", str(path))
    (line,) = [line for line in out.splitlines() if "unknown columns" in line]
    assert "step_time (did you mean step_time_s?)" in line


def test_extrapolated_rows_count_in_the_ranking_only(tmp_path: Path) -> None:
    path = measured(tmp_path, [1.0, 1.1, 1.2, 1.3])
    path.write_text(path.read_text().replace("\nr", "\nvtrains-"))
    found = answer(str(path))
    assert found["extrapolated"] == found["scored"] == 4
    assert found["step_time"]["configurations"] == 0
    assert found["ranking"]["groups"] == 1
    assert list(found["ranking"]["by_place"]) == ["extrapolated"]
    assert "they count in the ranking only" in ended("validate", str(path))[1]


def test_nonsense_is_named_and_skipped(tmp_path: Path) -> None:
    bad = [
        {"step_time_s": "-3"}, {"dp": "4"}, {"dp": "2"}, {"step_time_s": "1000000"}, {"gpus": "eight"},
        {"step_time_s": "0.0001"}, {"micro_batch": "0"}, {"precision": "fp8"},
    ]  # fmt: skip
    rows = [{**BASE, "id": "good", "step_time_s": "0.5"}, *({**BASE, "id": f"bad{n}", **b} for n, b in enumerate(bad))]
    found = answer(str(table(tmp_path, rows)))
    assert (found["rows"], found["scored"]) == (9, 1)
    named = {name: part for part in found["skipped"] for name in part["ids"]}
    assert set(named) == {f"bad{n}" for n in range(8)}
    assert named["bad1"] is named["bad2"]  # two degrees that do not give the devices are one reason
    assert "negative" in named["bad0"]["reason"]
    assert not any(part["kind"] == "defect" for part in found["skipped"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"), (b"", "is empty"), (b"\n\n", "is empty"), (b"id,gpu,gpus\n", "has no rows"),
        (b"a,b\n1,2\n", "no column that is known"), (b"id;gpu;gpus\na;b;c\n", "separated by commas, not by ';'"),
        (b"id,gpu,gpu\na,b,c\n", "the column is there twice"), (b"id,gpu\n\xff\xfe,1\n", "no CSV text in UTF-8"),
        (b'id,gpu\n"a,b\n', "no CSV text"), (b"PK\x03\x04\x00\x00", "no column that is known"),
        (b'{"id": 3}', "no column that is known"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_no_table_ends_with_one_message(
    tmp_path: Path, content: bytes | None, words: str, as_json: bool
) -> None:
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)
    code, out, err = ended("validate", str(path), *(["--json"] if as_json else []))
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert bool(out) == as_json


def test_outputs_do_not_overwrite_the_input_or_each_other(tmp_path: Path) -> None:
    path = table(tmp_path, [BASE])
    text = path.read_text()
    for options in (
        ["-o", str(path)],
        ["--plot", str(path)],
        ["-o", str(tmp_path)],
        ["-o", str(tmp_path / "no/a.csv")],
    ):
        assert ended("validate", str(path), *options)[0] == 2
    both = str(tmp_path / "both")
    assert ended("validate", str(path), "-o", both, "--plot", both)[0] == 2
    assert path.read_text() == text


def test_terminal_output_fits_80_columns(meshwright: Run, tmp_path: Path) -> None:
    path = measured(tmp_path, [1.25, 0.8, 1.6, 1.0])
    found = meshwright("validate", str(path), "--plot", "page.html")
    assert found.code == 0, found.err
    assert found.err == "wrote page.html\n"
    assert max(len(line) for line in found.out.splitlines()) <= 80
    assert "Traceback" not in found.out
    page = (tmp_path / "page.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "our log" in page


CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "2", "8", "-1", "1e9", "nan", "x", "true", "A100-80GB", "fp8", "full", "2000000000"]
    ),
    st.text(max_size=6),
)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(COLUMNS), CELLS, max_size=6),
    st.dictionaries(st.text(max_size=4), CELLS, max_size=2),
)
def test_no_row_is_fatal(tmp_path_factory: pytest.TempPathFactory, known: dict[str, str], more: dict[str, str]) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = table(folder, [{**BASE, **known, **{f"my {name}": cell for name, cell in more.items()}}, BASE])
    found = answer(str(path))
    assert found["rows"] == 2
    assert not any(part["kind"] == "defect" for part in found["skipped"]), found["skipped"]


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_an_answer_or_one_message(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "rows.csv"
    path.write_bytes(b"id,gpu,gpus,dp\n" + content)
    code, _, err = ended("validate", str(path), "--json")
    assert code in (0, 2)
    assert "Traceback" not in err
