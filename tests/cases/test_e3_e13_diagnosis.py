"""Cases E3 and E13: metrics of several layouts held against each other."""

import pytest

from meshwright.diagnosis.same_training import Metrics, judge_layouts


def _run(tp: int, norm: float, loss: float = 10.0, dp: int = 1, precision: str = "bf16") -> Metrics:
    return Metrics(f"tp{tp}dp{dp}", tp, dp, precision, (loss, loss * 0.9), (norm, norm))


def test_e3_norms_that_grow_with_the_tensor_degree() -> None:
    doubt = judge_layouts([_run(1, 1.0), _run(2, 1.09), _run(4, 1.25)])
    assert doubt is not None
    assert doubt.what == "gradient norm"
    assert doubt.share == pytest.approx(0.19, abs=0.005)
    assert "count replicated gradients once" in doubt.suspicion


@pytest.mark.parametrize(("ratio", "share"), [(1.52, 0.187), (1.36, 0.121)])
def test_e3_the_reported_ratios_at_tp_8(ratio: float, share: float) -> None:
    doubt = judge_layouts([_run(1, 1.0), _run(8, ratio)])
    assert doubt is not None
    assert doubt.share == pytest.approx(share, abs=0.001)


def test_e3_gradients_divided_by_the_wrong_number() -> None:
    doubt = judge_layouts([_run(1, 1.0), _run(1, 4.0, dp=4)])
    assert doubt is not None
    assert "ratio of dp" in doubt.suspicion


def test_e13_equal_losses_and_norms_ten_percent_apart() -> None:
    doubt = judge_layouts([_run(1, 26.3, 10.0), _run(2, 28.9, 10.005)])
    assert doubt is not None
    assert doubt.difference == pytest.approx(0.099, abs=0.001)
    assert "suspicious" in doubt.suspicion
    assert "fp32" in doubt.suspicion


def test_e13_the_first_failing_comparison_is_named() -> None:
    doubt = judge_layouts([_run(1, 1.0, 10.0, precision="fp32"), _run(2, 1.5, 10.01, precision="fp32")])
    assert doubt is not None
    assert doubt.what == "loss of the first step"
    assert judge_layouts([_run(1, 1.0), _run(2, 1.001), _run(4, 1.003)]) is None
