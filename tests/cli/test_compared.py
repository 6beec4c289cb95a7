"""`compare`: runs beside each other, by their repeats."""

from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError
from meshwright.cli.compared import compare_runs
from meshwright.files.run import RunFolder, StepMetrics
from meshwright.files.run_io import append_metrics


def _run(folder: Path, mean: float, seed: int, mode: str = "measured", windows: int = 10) -> Path:
    """A run of so many windows of three steps, each window 1 % off its mean."""
    run = RunFolder(folder)
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for window in range(windows):
        time = rng.normal(mean, 0.01 * mean)
        for step in range(3):
            metrics = StepMetrics(3 * window + step + 1, 2.5, 1.0, 1e-3, 64, time, mode, window=window)  # type: ignore[arg-type]
            append_metrics(run.metrics, metrics)
    return folder


def test_a_shift_of_three_percent_is_beyond_the_spread_and_noise_is_not(tmp_path: Path) -> None:
    first = _run(tmp_path / "a", 0.200, 1)
    slower = compare_runs([first, _run(tmp_path / "b", 0.206, 3)])
    assert slower.significant == ["step time"]
    assert "beyond the spread" in slower.verdict
    same = compare_runs([first, _run(tmp_path / "c", 0.200, 2)])
    assert same.significant == []
    assert "within the spread" in same.verdict
    assert same.figures[3].first is None  # memory was not recorded


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    first = _run(tmp_path / "a", 0.2, 1, windows=1)
    assert compare_runs([first, _run(tmp_path / "b", 0.4, 2, windows=1)]).figures[0].significant is None
    with pytest.raises(InputError, match="different modes"):
        compare_runs([first, _run(tmp_path / "c", 0.2, 2, mode="dilated")])
    with pytest.raises(InputError, match="two run folders"):
        compare_runs([first])
    with pytest.raises(InputError, match="not a run folder"):
        compare_runs([first, tmp_path])
