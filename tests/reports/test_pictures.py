"""The pictures draw the numbers they are given, and plotly knows every property they use."""

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from meshwright.basics.quantities import MIB
from meshwright.files.findings import RankSplit
from meshwright.files.run import RankMemory
from meshwright.reports.loss_curve import loss_curve
from meshwright.reports.memory_bars import memory_bars
from meshwright.reports.page import sections
from meshwright.reports.picture import Picture
from meshwright.reports.pipeline_picture import Panel, pipeline_picture
from meshwright.reports.rank_split import rank_split
from meshwright.reports.step_picture import StepRow, step_picture, terms_picture


def _lengths(picture: Picture, name: str) -> list[float]:
    return [value for trace in picture.data if trace["name"] == name for value in trace["x"]]


def test_plotly_accepts_every_picture(tuned) -> None:
    pictures = sections(tuned)
    assert [p.name for p in pictures] == ["steps", "timeline-0", "timeline-1", "ranks", "terms", "memory", "loss"]
    for picture in pictures:
        text = picture.json
        assert "<" not in text
        for token in ("ink", "faint", "grid", "paper", "idle"):
            text = text.replace(f'"${token}"', '"#123456"')
        figure = json.loads(text)
        go.Figure(figure["data"], figure["layout"])  # raises on any unknown property or bad value


def test_every_picture_says_its_mode_and_has_its_figures_as_a_table(tuned) -> None:
    for picture in sections(tuned):
        assert picture.modes
        assert set(picture.modes) <= {"predicted", "measured", "dilated", "emulated"}
        assert picture.table is not None
        assert picture.table.rows
        assert all(len(row) == len(picture.table.head) for row in picture.table.rows)


def test_prediction_stands_above_measurement_on_one_axis(tuned) -> None:
    first = tuned.runs[0]
    panels = [Panel("", first.predicted_timeline), Panel("run-1", first.timeline)]
    picture = pipeline_picture("t", "T", panels)
    upper, lower = picture.layout["yaxis"]["domain"], picture.layout["yaxis2"]["domain"]
    assert lower[1] < upper[0]
    assert [key for key in picture.layout if key.startswith("xaxis")] == ["xaxis"]
    longest = max(p.timeline.end.max() - p.timeline.start.min() for p in panels[:1]) / 1e6
    assert picture.layout["xaxis"]["range"][1] == pytest.approx(longest * 1.01, rel=0.02)
    assert picture.modes == ("predicted", "dilated")


def test_shares_of_the_step_computed_are_the_simulators(tuned) -> None:
    first = tuned.runs[0]
    picture = pipeline_picture("t", "T", [Panel("", first.predicted_timeline)])
    assert picture.table is not None
    shown = [float(row[2].rstrip("%")) / 100 for row in picture.table.rows]
    assert first.prediction is not None
    assert shown == pytest.approx([1 - idle for idle in first.prediction.idle_fraction], abs=1e-3)


def test_a_crowded_timeline_is_thinned_and_says_so(tuned) -> None:
    timeline = tuned.runs[0].timeline
    many = replace(timeline, recorded=tuple(range(40)))
    picture = pipeline_picture("t", "T", [Panel("run", many)])
    assert picture.notes == ("run: the first 32 of 40 ranks are drawn.",)


def test_memory_bars_add_up_to_the_prediction_and_show_the_heaviest_rank(tuned) -> None:
    prediction = tuned.runs[0].prediction
    held = [RankMemory(0, 10 * MIB, 10 * MIB, 20 * MIB, 0), RankMemory(1, 11 * MIB, 10 * MIB, 20 * MIB, 0)]
    picture = memory_bars(prediction, held, (0, 0))
    predicted = sum(sum(trace["x"]) for trace in picture.data if "pattern" not in trace["marker"])
    assert predicted == pytest.approx(sum(stage.total for stage in prediction.memory) / MIB)
    measured = [trace for trace in picture.data if "pattern" in trace["marker"]]
    assert [trace["x"] for trace in measured] == [[11.0], [10.0], [20.0]]
    assert "beyond the right edge" in picture.caption  # 74 MiB of 256 MiB
    tight = memory_bars(replace(prediction, memory_limit_bytes=70 * MIB, fits=False))
    assert tight.layout["shapes"][0]["x0"] == 70.0
    assert tight.modes == ("predicted",)


def test_the_tracked_peak_stands_beside_the_prediction(tuned) -> None:
    held = [RankMemory(rank, MIB, MIB, MIB, 0, peak) for rank, peak in enumerate((80 * MIB, 90 * MIB, None, 70 * MIB))]
    picture = memory_bars(tuned.runs[0].prediction, held, (0, 0, 1, 2))
    assert _lengths(picture, "measured peak") == [
        90.0,
        70.0,
    ]  # of ranks 0 and 1 the larger; rank 2 tracked none
    assert picture.table is not None
    assert [row[-1] for row in picture.table.rows] == ["90.00 MiB", "not recorded", "70.00 MiB", "not recorded"]
    assert picture.layout["xaxis"]["range"][1] > 90


def test_memory_without_a_recorded_rank_says_so(tuned) -> None:
    picture = memory_bars(tuned.runs[0].prediction, [RankMemory(0, MIB, MIB, MIB, 0)], (0,))
    assert picture.table is not None
    assert picture.table.rows[3][-3:] == ("not recorded",) * 3


def test_the_parts_of_a_rank_add_up_to_its_window(tuned) -> None:
    diagnosis = tuned.runs[0].diagnosis
    picture = rank_split({"run-1": diagnosis})
    total = [0.0] * 4
    for trace in picture.data:
        total = [so_far + value for so_far, value in zip(total, trace["x"], strict=True)]
    assert total == pytest.approx([split.window_s * 1e3 for split in diagnosis.ranks])
    # 0.1 s of kernels that could not be classified lie inside the 0.5 s of compute: the bar still ends at the window
    odd = rank_split(
        {"odd": replace(diagnosis, ranks=(RankSplit(0, 1.0, 0.5, 0.2, 0.0, 0.3, 0.2, unclassified_s=0.1),))}
    )
    assert sum(trace["x"][0] for trace in odd.data) == pytest.approx(1000.0)
    assert _lengths(odd, "unclassified") == pytest.approx([100.0])
    many = replace(diagnosis, ranks=tuple(RankSplit(r, 1.0, 0.5, 0.2, 0.0, 0.3, 0.4) for r in range(100)))
    crowded = rank_split({"big": many})
    assert "32 of 100" in crowded.notes[0]
    assert crowded.table is not None
    assert len(crowded.table.rows) == 100


def test_every_repeat_is_a_dot_beside_its_prediction() -> None:
    rows = [StepRow("run-1", "dilated", (0.40, 0.41, 0.42), {"predicted before measuring": 0.43})]
    picture = step_picture(rows)
    assert _lengths(picture, "a repeat") == pytest.approx([400.0, 410.0, 420.0])
    assert _lengths(picture, "predicted before measuring") == pytest.approx([430.0])
    assert picture.layout["xaxis"]["range"][0] == 0
    assert picture.modes == ("predicted", "dilated")


def test_terms_end_at_the_predicted_step(tuned) -> None:
    prediction = tuned.runs[0].prediction
    picture = terms_picture({"run-1": prediction})
    assert sum(trace["x"][0] for trace in picture.data) == pytest.approx(prediction.step_time_s * 1e3)


def test_loss_curve_has_every_step_and_tells_runs_apart_without_colour(tuned) -> None:
    runs = {view.name: view.metrics for view in tuned.runs}
    picture = loss_curve(runs)
    assert [trace["x"] for trace in picture.data] == [list(range(20))] * 2
    assert len({trace["line"]["dash"] for trace in picture.data}) == 2
    assert picture.caption.startswith("run-1: 7.6000 to ")
