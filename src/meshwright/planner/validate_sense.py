"""What measured figures cannot be, judged by what was predicted: mostly figures in another unit."""

from meshwright.basics.quantities import GIB, seconds_text
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction
from meshwright.planner.rows_memory import MemoryFigure
from meshwright.planner.validate_measured import MeasuredStep

_OVER_PEAK = 1.05  # peaks are rounded, and some clocks are above the nominal one
_SLOWER = 200.0  # a step so many times longer than predicted is one in milliseconds
_OVER_MEMORY = 1.1  # memory is printed in GB and GiB, with and without what the device keeps for itself


def impossible(plan: Plan, prediction: Prediction, step: MeasuredStep | str, memory: MemoryFigure | None) -> str:
    """Why the measured figures cannot be those of this plan; empty when they can."""
    if isinstance(step, MeasuredStep):
        predicted = prediction.step_time_s
        reached = (prediction.mfu or 0.0) * predicted / step.seconds
        if reached > _OVER_PEAK:
            return (
                f"a step of {seconds_text(step.seconds)} (from its {step.origin}) would take {reached:.1f} times the "
                "devices' peak: another unit, another batch, or the rate of all devices together?"
            )
        if step.seconds > _SLOWER * predicted:
            return (
                f"a step of {seconds_text(step.seconds)} (from its {step.origin}) where {seconds_text(predicted)} is "
                "predicted: milliseconds, or a rate in another unit?"
            )
    held = plan.setup.proposal.cluster.device.memory_bytes / GIB
    if memory is not None and memory.low_gib > _OVER_MEMORY * held:
        return f"peak_memory_gib {memory.gib:g} on devices of {held:.0f} GiB: another unit?"
    return ""
