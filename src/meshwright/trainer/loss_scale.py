"""fp16's loss scale: gradients below 6e-8 vanish in fp16, so the loss is multiplied before the backward.

Micikevicius et al. 2018, section 3.2, with the figures of `torch.amp.GradScaler`: halved, and the step skipped, when a
gradient overflows; doubled after 2,000 good steps. All ranks decide alike, as they decide by the global norm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.basics.errors import RunFailed
from meshwright.model.training import Training

START = 2.0**16
FLOOR = 1.0
GROW_AFTER = 2000  # good steps
PATIENCE = 20  # skipped steps in a row
_NAMED = 3


@dataclass
class LossScale:
    """The scale and what led to it. Without fp16 it is 1 and stays so."""

    active: bool
    fixed: bool
    value: float
    good: int = 0  # good steps since the scale last changed
    in_a_row: int = 0  # skipped steps, up to now
    skipped: int = 0  # skipped steps in all: the schedule of learning rates leaves them out
    first: int = 0  # the step with which the present row of skips began, counted from 1
    where: tuple[str, ...] = ()  # units whose gradients overflowed in it

    def passed(self) -> None:
        """A step's gradients were finite."""
        self.in_a_row, self.good = 0, self.good + 1
        if self.active and not self.fixed and self.good >= GROW_AFTER:
            self.value, self.good = self.value * 2, 0

    def overflowed(self, step: int, where: Sequence[str] = ()) -> None:
        """A step's gradients were not finite: it is skipped. `where` names units, with the first of a row.

        Raises RunFailed, before anything changes, when the scale cannot fall any further or `PATIENCE` steps in a row
        were skipped.
        """
        if self.in_a_row == 0:
            self.first, self.where = step, tuple(where)
        self.in_a_row, self.skipped, self.good = self.in_a_row + 1, self.skipped + 1, 0
        at_floor = not self.fixed and self.value <= FLOOR
        if at_floor or self.in_a_row >= PATIENCE:
            why = f"at the smallest loss scale, {FLOOR:g}" if at_floor else f"{self.in_a_row} steps in a row"
            named = ", ".join(self.where[:_NAMED]) or "a unit that is not known"
            raise RunFailed(
                f"step {step}: fp16 gradients overflow {why} (loss scale {self.value:g}); it began with step "
                f"{self.first}, in {named}. Train in bf16, which has the range of fp32 (training.precision), or with a "
                f"lower training.lr"
            )
        if not self.fixed:
            self.value = max(FLOOR, self.value / 2)

    def numbers(self) -> list[float]:
        """What a checkpoint keeps."""
        return [self.value, float(self.good), float(self.in_a_row), float(self.skipped), float(self.first)]

    def restore(self, numbers: Sequence[float]) -> None:
        """From `numbers`; a fixed or inactive scale keeps its value."""
        value, good, in_a_row, skipped, first = numbers
        if self.active and not self.fixed:
            self.value = value
        self.good, self.in_a_row, self.skipped, self.first = int(good), int(in_a_row), int(skipped), int(first)


def loss_scale(training: Training) -> LossScale:
    """The scale with which a training begins."""
    if training.precision != "fp16":
        return LossScale(active=False, fixed=True, value=1.0)
    return LossScale(active=True, fixed=training.loss_scale is not None, value=training.loss_scale or START)


def verdict(skips: Sequence[tuple[int, float]], steps: int) -> str:
    """What skipped steps mean: `skips` are (step counted from 1, scale at which it overflowed), of `steps` in all.

    Begins with "none", "harmless", "diverging", or with "unsettled" when the last step was one of them.
    """
    if not skips:
        return "none: no step was skipped"
    row = longest = 0
    before = -1
    for step, _ in skips:
        row = row + 1 if step == before + 1 else 1
        longest, before = max(longest, row), step
    lowest = min(scale for _, scale in skips)
    if lowest <= FLOOR or longest >= PATIENCE:
        return (
            f"diverging: the loss scale fell to {lowest:g}, {longest} steps in a row were skipped from step "
            f"{skips[0][0]} on; train in bf16"
        )
    if before == steps:
        return f"unsettled: the last {row} of {steps} steps were skipped, down to a loss scale of {lowest:g}"
    return (
        f"harmless: {len(skips)} of {steps} steps were skipped while the loss scale found its size, at most {longest} "
        f"in a row, and none below a scale of {lowest:g}"
    )
