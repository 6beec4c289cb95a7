"""The measured step time of a row: from what it prints, and never by a guess."""

from pathlib import Path
from statistics import median

import pytest

from meshwright.files.rows import read_rows
from meshwright.planner.configurations import Configuration, configuration_of
from meshwright.planner.validate_measured import MeasuredStep, extrapolated, measured_step, step_flops

from .validate_rows import row

DATA = Path(__file__).parents[2] / "data" / "measurements" / "measurements.csv"

# 8 layers of 1024 with 4096, vocabulary 51200, 64 sequences of 2048: forward FLOPs of a token by hand.
LAYER = 2 * (4 * 1024 * 1024 + 2 * 1024 * 4096)
HEAD = 2 * 1024 * 51200
FULL_ATTENTION = 2 * 2 * 2048 * 1024
TOKENS = 64 * 2048


def step(**values: object) -> MeasuredStep | str:
    one = row(**values)
    found = configuration_of(one)
    assert isinstance(found, Configuration)
    return measured_step(one, found.plan)


def test_a_printed_step_time_comes_first() -> None:
    assert step(step_time_s=2.5, tokens_per_s_per_gpu=6000.0) == MeasuredStep(2.5, "step time")


def test_from_tokens_a_second() -> None:
    assert step(tokens_per_s_per_gpu=8192.0) == MeasuredStep(TOKENS / (8192 * 8), "tokens/s")


def test_a_step_time_needs_a_batch_and_tokens_do_not() -> None:
    assert step(step_time_s=2.5, global_batch=None) == "a step time without global_batch"
    assert isinstance(step(tokens_per_s_per_gpu=8192.0, global_batch=None), MeasuredStep)


@pytest.mark.parametrize(
    ("said", "forward"),
    [
        ("model FLOPs per Appendix A (full attention, no recompute)", 8 * (LAYER + FULL_ATTENTION) + HEAD),
        ("model FLOPs without recompute; attention counted causally (half)", 8 * (LAYER + FULL_ATTENTION / 2) + HEAD),
    ],
)
def test_from_model_flops(said: str, forward: float) -> None:
    found = step(tflops_per_gpu=100.0, flops_convention=said)
    assert isinstance(found, MeasuredStep)
    assert found.origin == "TFLOP/s"
    assert found.seconds == pytest.approx(3 * forward * TOKENS / (8 * 100e12))


@pytest.mark.parametrize(("recompute", "passes"), [("full", 96), ("none", 72)])
def test_from_the_formula_of_megatron(recompute: str, passes: int) -> None:
    said = "hardware FLOPs: 96*B*s*l*h^2*(1+s/6h+V/16lh), recompute included"
    found = step(tflops_per_gpu=100.0, flops_convention=said, recompute=recompute)
    assert isinstance(found, MeasuredStep)
    flops = passes * TOKENS * 8 * 1024**2 * (1 + 2048 / (6 * 1024) + 51200 / (16 * 8 * 1024))
    assert found.seconds == pytest.approx(flops / (8 * 100e12))


def test_from_a_utilisation_of_a_stated_peak() -> None:
    said = "model FLOPs, full attention, no recompute, peak 312"
    found = step(mfu_percent=50.0, flops_convention=said)
    assert isinstance(found, MeasuredStep)
    assert found.origin == "MFU"
    assert found.seconds == pytest.approx(3 * (8 * (LAYER + FULL_ATTENTION) + HEAD) * TOKENS / (8 * 156e12))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "no step time"),
        ({"mfu_percent": 50.0}, "peak not stated"),
        ({"mfu_percent": 50.0, "flops_convention": "full attention, peak 312 presumed"}, "peak not stated"),
        ({"tflops_per_gpu": 100.0}, "convention"),
        ({"tflops_per_gpu": 100.0, "flops_convention": "model FLOPs; attention convention not stated"}, "convention"),
        ({"tflops_per_gpu": 100.0, "flops_convention": "Megatron SC21 formula", "recompute": "unknown"}, "convention"),
        ({"tflops_per_gpu": 100.0, "flops_convention": "model FLOPs, full attention", "task": "lora"}, "convention"),
        ({"peak_memory_stated": "OOM"}, "out of memory"),
    ],
)
def test_nothing_is_guessed(values: dict[str, object], reason: str) -> None:
    found = step(**values)
    assert isinstance(found, str)
    assert reason in found


def test_rows_that_print_time_and_flops_agree_with_how_we_read_their_convention() -> None:
    """The published tables check the reading of every convention: FLOPs over the printed rate give the printed time."""
    ratios: dict[str, list[float]] = {}
    for one in read_rows(DATA):
        found = configuration_of(one)
        if not isinstance(found, Configuration) or one.tflops_per_gpu is None:
            continue
        measured, flops = measured_step(one, found.plan), step_flops(one, found.plan)
        if isinstance(measured, MeasuredStep) and measured.origin in ("step time", "tokens/s") and flops is not None:
            seconds = flops / (one.tflops_per_gpu * 1e12 * found.plan.layout.world)
            ratios.setdefault(one.flops_convention, []).append(seconds / measured.seconds)
    assert len(ratios) >= 5
    for said, found_ratios in ratios.items():
        assert median(found_ratios) == pytest.approx(1, abs=0.02), said


def test_extrapolated_rows_are_known_by_their_table() -> None:
    assert extrapolated(row(id="vtrainsfull-004"))
    assert extrapolated(row(id="7", source="vTrain data/ground_truth_single.csv"))
    assert not extrapolated(row(id="vtrainm-004", source="vTrain data/ground_truth_multi.csv"))
