"""A row beside its prediction; what cannot be is named, and nothing is fatal."""

import pytest

from meshwright.files.rows import Row
from meshwright.planner import validate
from meshwright.planner.configurations import Skipped
from meshwright.planner.validate import Judged, judge, memory_verdicts
from meshwright.predictor.step import predict

from .validate_rows import judged, row


def predicted_s(**values: object) -> float:
    found = judge(row(**values))
    assert isinstance(found, Judged)
    return found.prediction.step_time_s


def skipped(one: Row) -> Skipped:
    found = judge(one)
    assert isinstance(found, Skipped), found
    return found


def test_the_prediction_is_that_of_the_plan() -> None:
    found = judge(row(step_time_s=0.4))
    assert isinstance(found, Judged)
    assert found.prediction == predict(found.plan)
    assert found.step_error == pytest.approx(found.prediction.step_time_s / 0.4 - 1)


def test_the_peak_is_counted_as_the_source_counts() -> None:
    peaks = {}
    for stated in ("5 GiB max allocated", "5 GiB max reserved", "5 GiB by nvidia-smi"):
        found = judge(row(peak_memory_gib=5.0, peak_memory_stated=stated))
        assert isinstance(found, Judged)
        peaks[stated] = found.peak_gib
    allocated, reserved, device = peaks.values()
    assert allocated < reserved < device


def test_without_a_figure_the_kind_still_follows_the_source() -> None:
    with_figure = judge(row(peak_memory_gib=5.0, peak_memory_stated="max reserved"))
    without = judge(row(peak_memory_stated="max reserved"))
    assert isinstance(with_figure, Judged)
    assert isinstance(without, Judged)
    assert without.peak_gib == with_figure.peak_gib
    assert without.memory_error is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dp": 4}, "but gpus is 8"), ({"gpu": "Z9000"}, "Z9000"), ({"gpu": ""}, "not stated: gpu"),
        ({"tp": None, "dp": None}, "tp"), ({"precision": "fp8"}, "fp8"), ({"layers": 20_000}, "more than 10,000"),
        ({"global_batch": 64 * 10**6}, "passes through a stage"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted_is_named(values: dict[str, object], said: str) -> None:
    found = skipped(row(**values))
    assert said in found.reason
    assert found.kind != "defect"


def test_a_step_faster_than_the_peak_is_named() -> None:
    seconds = predicted_s()
    assert isinstance(judge(row(step_time_s=seconds)), Judged)
    found = skipped(row(step_time_s=seconds / 1000))
    assert found.kind == "nonsense"
    assert "times the devices' peak" in found.reason


def test_the_rate_of_all_devices_in_the_column_of_one_is_named() -> None:
    rate = 64 * 2048 / (8 * predicted_s())
    assert isinstance(judge(row(tokens_per_s_per_gpu=rate)), Judged)
    assert "all devices together" in skipped(row(tokens_per_s_per_gpu=64 * rate)).reason


def test_milliseconds_in_the_column_of_seconds_are_named() -> None:
    assert "milliseconds" in skipped(row(step_time_s=1000 * predicted_s())).reason


def test_more_memory_than_the_device_has_is_named() -> None:
    found = skipped(row(peak_memory_gib=7000.0, peak_memory_stated="7000 MiB"))
    assert found.kind == "nonsense"
    assert "peak_memory_gib 7000" in found.reason


def test_what_the_predictor_breaks_on_is_named_as_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(validate, "predict", broken)
    found = skipped(row())
    assert found.kind == "defect"
    assert "ZeroDivisionError" in found.reason


def test_runs_out_of_memory_are_counted_apart() -> None:
    huge = {"layers": 96, "hidden": 12288, "ffn_hidden": 49152, "heads": 96, "kv_heads": 96, "zero_stage": 0}
    out = judge(row(peak_memory_stated="OOM", **huge))
    fine = judge(row(peak_memory_stated="OOM"))
    ran = judge(row(step_time_s=1.0))
    assert isinstance(out, Judged)
    assert isinstance(fine, Judged)
    assert isinstance(ran, Judged)
    found = memory_verdicts([out, fine, ran])
    assert (found.out, found.foreseen, found.ran, found.refused) == (2, 1, 1, 0)


def test_scored_means_that_something_was_measured() -> None:
    assert not judged(None, 1.0).scored
    assert judged(1.0, 1.0).scored
    assert judged(None, 1.0, peak_memory_gib=5.0).scored
