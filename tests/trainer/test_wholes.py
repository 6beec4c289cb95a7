"""Comparing whole parameters with those that a reference left."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.wholes import differences, keep, small, unequal


def test_what_is_zero_but_for_rounding_can_be_left_out_of_a_comparison(tmp_path: Path) -> None:
    """AdamW turns rounding into steps of full size: the gradient of a key's bias is nothing but rounding."""
    keep({"matrix": np.full(4, 1.0), "k.bias": np.full(4, 1e-8)}, tmp_path / "gradients")
    keep({"matrix": np.full(4, 2.0), "k.bias": np.full(4, 1e-3)}, tmp_path / "after")
    found = {"matrix": np.full(4, 2.0), "k.bias": np.full(4, -1e-3)}
    noise = small(tmp_path / "gradients", 1e-6)
    assert noise == {"k.bias"}
    assert differences(found, tmp_path / "after")[0].name == "k.bias"
    left = differences(found, tmp_path / "after", without=noise)
    assert [(difference.name, difference.relative) for difference in left] == [("matrix", 0.0)]


def test_a_missing_parameter_differs_without_bounds(tmp_path: Path) -> None:
    keep({"a": np.ones(2), "b": np.ones(2)}, tmp_path / "kept")
    worst = differences({"a": np.ones(2)}, tmp_path / "kept")[0]
    assert (worst.name, worst.relative) == ("b", float("inf"))
    assert unequal({"a": np.ones(2), "c": np.ones(2)}, tmp_path / "kept") == ("b", "c")
