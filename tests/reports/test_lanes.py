"""One step of a timeline as lanes."""

import numpy as np
import pytest

from meshwright.reports.lanes import (
    BACKWARD,
    CATEGORIES,
    COMMUNICATION,
    FORWARD,
    OPTIMIZER,
    joined,
    lanes,
    typical_step,
)
from meshwright.timeline.columns import Action, Kind, build


def _timeline(lengths: list[int], scale: float = 1.0):
    """A forward, a host span and a transfer on rank 0 in each step; the forward takes `lengths[step]` nanoseconds."""
    columns: dict[str, list[int]] = {name: [] for name in ("rank", "start", "end", "kind", "action", "name", "step")}
    at = 10**9
    for step, length in enumerate(lengths):
        for kind, action, begin, end in (
            (Kind.COMPUTE, Action.FORWARD, at, at + length),
            (Kind.COMMUNICATION, Action.NONE, at + length // 2, at + length),
            (Kind.HOST, Action.NONE, at - 5, at + 10 * length),
        ):
            row = (0, begin, end, kind, action, 0, step)
            for column, value in zip(columns, row, strict=True):
                columns[column].append(value)
        at += 20 * length
    return build(dict(columns), names=["span"], mode="dilated" if scale != 1 else "measured", time_scale=scale)


def test_the_typical_step_is_the_median_one_not_the_first_or_the_slowest() -> None:
    assert typical_step(_timeline([9_000_000, 2_000_000, 3_000_000])) == 2
    assert typical_step(_timeline([1_000_000, 2_000_000])) == 0  # of two the lower


def test_times_are_device_milliseconds_from_the_steps_start_and_host_time_is_left_out() -> None:
    spans = lanes(_timeline([8_000_000], scale=4.0))
    assert spans.step_ms == pytest.approx(2.0)  # 8 ms of wall time at K = 4
    assert spans.start_ms.tolist() == pytest.approx([0.0, 1.0])
    assert [CATEGORIES[c] for c in spans.category] == [FORWARD, COMMUNICATION]


def test_every_pipeline_action_has_its_category(tuned) -> None:
    timeline = tuned.runs[0].predicted_timeline
    spans = lanes(timeline)
    found = {CATEGORIES[c]: int((spans.category == c).sum()) for c in np.unique(spans.category)}
    assert found[FORWARD] == found[BACKWARD] == 4 * 8
    assert found[OPTIMIZER] == 4
    assert found[COMMUNICATION] == 2 * 3 * 8  # activations forth, gradients back, over three boundaries


def test_only_the_ranks_asked_for_but_the_whole_step() -> None:
    columns = {"rank": [0, 1], "start": [0, 5_000_000], "end": [1_000_000, 9_000_000], "kind": [0, 0], "name": [0, 0]}
    spans = lanes(build(columns, names=["x"], mode="measured"), ranks=[1])
    assert (len(spans), spans.row.tolist(), spans.step_ms) == (1, [0], pytest.approx(9.0))


def test_joining_closes_small_gaps_only_within_a_row_and_category(tuned) -> None:
    timeline = tuned.runs[0].predicted_timeline
    spans = lanes(timeline)
    whole = joined(spans, 0.0)
    compute = spans.category != CATEGORIES.index(COMMUNICATION)
    kept = whole.category != CATEGORIES.index(COMMUNICATION)
    assert whole.length_ms[kept].sum() == pytest.approx(spans.length_ms[compute].sum())  # compute never overlaps here
    assert len(joined(spans, spans.step_ms)) == len({*zip(spans.row.tolist(), spans.category.tolist(), strict=True)})


def test_a_step_without_device_spans_is_an_error() -> None:
    with pytest.raises(ValueError, match="no device spans in step 7"):
        lanes(_timeline([1_000_000]), step=7)
