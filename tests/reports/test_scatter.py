"""The picture of measured against predicted: a dot a configuration, and plotly knows every property."""

import json
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from meshwright.files.rows import Row
from meshwright.planner.configurations import Skipped
from meshwright.planner.validate import Judged, judge
from meshwright.reports.picture import Picture
from meshwright.reports.scatter import memory_picture, steps_picture, write_scatter

ROW: dict[str, Any] = {
    "gpu": "A100-80GB", "gpus": 8, "gpus_per_node": 8, "dp": 8, "tp": 1, "pp": 1, "micro_batch": 1, "global_batch": 64,
    "seq_len": 2048, "layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "recompute": "none", "source": "<log>",
}  # fmt: skip


def judged(line: int, **values: Any) -> Judged:
    found = judge(Row(line=line, **{**ROW, **values}))
    assert isinstance(found, Judged), found
    return found


@pytest.fixture(scope="module")
def rows() -> list[Judged]:
    return [
        judged(2, step_time_s=0.5, id="a", peak_memory_gib=10.0), judged(3, step_time_s=0.7, gpu="H100-80GB-SXM"),
        judged(4, step_time_s=0.6, config_group="g"), judged(5, step_time_s=0.61, config_group="g"), judged(6),
    ]  # fmt: skip


def _dots(picture: Picture) -> list[tuple[float, float]]:
    marks = [trace for trace in picture.data if trace["mode"] == "markers"]
    return [pair for trace in marks for pair in zip(trace["x"], trace["y"], strict=True)]


def test_a_dot_a_measured_configuration(rows: list[Judged]) -> None:
    picture = steps_picture(rows)
    assert picture is not None
    drawn = sorted(_dots(picture))
    assert len(drawn) == 3  # g once, the row without a time not at all
    assert drawn[0] == (0.5, rows[0].prediction.step_time_s)
    assert picture.table is not None
    assert [row[:2] for row in picture.table.rows] == [("A100, A800", "2"), ("H100, H200, H800", "1")]


def test_memory_of_the_rows_that_have_some(rows: list[Judged]) -> None:
    picture = memory_picture(rows)
    assert picture is not None
    assert _dots(picture) == [(10.0, rows[0].peak_gib)]
    assert memory_picture(rows[1:]) is None


def test_plotly_accepts_it(rows: list[Judged]) -> None:
    for picture in (steps_picture(rows), memory_picture(rows)):
        assert picture is not None
        text = picture.json
        assert "<" not in text
        for token in ("ink", "faint", "grid", "paper", "idle"):
            text = text.replace(f'"${token}"', '"#123456"')
        figure = json.loads(text)
        go.Figure(figure["data"], figure["layout"])  # raises on any unknown property or bad value


def test_the_page_is_one_file_and_escapes_what_rows_say(rows: list[Judged], tmp_path: Path) -> None:
    skipped = judge(Row(line=9, gpu="nothing", gpus=1))
    assert isinstance(skipped, Skipped)
    write_scatter([*rows, skipped], "<b>.csv", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;.csv" in page
    assert "<b>.csv" not in page
    assert "<log>" not in page
    assert "5 of 6 rows are predicted; step times with a median error of" in page
    assert 'src="http' not in page


def test_a_page_without_a_measured_figure_says_so(rows: list[Judged], tmp_path: Path) -> None:
    write_scatter(rows[-1:], "rows.csv", tmp_path / "page.html")
    assert "none of them has a measured figure" in (tmp_path / "page.html").read_text()
