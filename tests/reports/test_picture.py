"""A picture's JSON, which the page's script reads."""

import json
import math

import pytest

from meshwright.files.run import StepMetrics
from meshwright.reports.loss_curve import loss_curve


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_run_that_diverged_is_drawn_with_a_gap_and_told_in_words(loss: float) -> None:
    steps = [StepMetrics(n, value, value, 1e-3, 64, 0.1, "measured") for n, value in enumerate((6.5, loss, loss), 1)]
    picture = loss_curve({"run": steps})
    assert json.loads(picture.json)["data"][0]["y"] == [6.5, None, None]
    assert f"6.5000 to {loss:.4f}" in picture.caption
