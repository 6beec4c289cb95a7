"""Measured steps that cannot be, judged by what was predicted: mostly figures in another unit."""

from meshwright.files.prediction import Prediction
from meshwright.planner.validate_measured import MeasuredStep

_OVER_PEAK = 1.05  # peaks are rounded, and some clocks are above the nominal one
_SLOWER = 200.0  # a step so many times longer than predicted is one in milliseconds


def impossible(prediction: Prediction, step: MeasuredStep | str) -> str:
    """Why the measured step cannot be one of the plan that this was predicted for; empty when it can."""
    if isinstance(step, MeasuredStep):
        predicted = prediction.step_time_s
        reached = (prediction.mfu or 0.0) * predicted / step.seconds
        if reached > _OVER_PEAK:
            return (
                f"a step of {step.seconds:.4g} s (from its {step.origin}) would take {reached:.1f} times the "
                "devices' peak: another unit, another batch, or the rate of all devices together?"
            )
        if step.seconds > _SLOWER * predicted:
            return (
                f"a step of {step.seconds:.4g} s (from its {step.origin}) where {predicted:.4g} s is "
                "predicted: milliseconds, or a rate in another unit?"
            )
    return ""
