"""What a running run has reported so far, read from its metrics as they grow."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.basics.quantities import seconds_text
from meshwright.files.run import StepMetrics
from meshwright.files.run_io import parse_metrics

SILENCE_S = 4.5  # progress never pauses for longer


def step_line(step: StepMetrics, steps: int) -> str:
    """`step 3 of 20: loss 6.9326, 412 ms (dilated x4, 1.65 s of wall time)`."""
    clock = ""
    if step.mode == "dilated":
        clock = f" (dilated x{step.dilation:g}, {seconds_text(step.step_time_s)} of wall time)"
    elif step.mode != "measured":
        clock = f" ({step.mode})"
    traced = ", profiled" if step.profiled else ""
    return f"step {step.step} of {steps}: loss {step.loss:.4f}, {seconds_text(step.device_s)}{clock}{traced}"


@dataclass
class Watch:
    """Follows `metrics.jsonl` of a run of `steps` steps on `world` ranks and speaks at least every few seconds."""

    file: Path
    world: int
    steps: int
    log_every: int
    progress: Callable[[str], None]
    last: StepMetrics | None = None
    _offset: int = 0
    _spoke: float = field(default_factory=time.monotonic)
    _since: float = field(default_factory=time.monotonic)  # of the last step, or of the start

    def skip_existing(self) -> None:
        """Leave out what an earlier, now resumed, run wrote."""
        self._offset = self.file.stat().st_size if self.file.exists() else 0

    def look(self) -> None:
        """Report new steps; failing those, that something is still going on."""
        for step in self._new_steps():
            self.last = step
            self._since = time.monotonic()
            if step.step % self.log_every == 0 or step.step == self.steps:
                self._say(step_line(step, self.steps))
        if time.monotonic() - self._spoke > SILENCE_S:
            self._say(self._waiting())

    def _new_steps(self) -> tuple[StepMetrics, ...]:
        if not self.file.exists():
            return ()
        with self.file.open("rb") as stream:
            stream.seek(self._offset)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return parse_metrics(whole, str(self.file))

    def _waiting(self) -> str:
        waited = seconds_text(time.monotonic() - self._since)
        if self.last is None:
            return f"starting {self.world} rank{'s' if self.world > 1 else ''}… {waited}"
        if self.last.step >= self.steps:
            return f"finishing… {waited}"
        return f"step {self.last.step + 1} of {self.steps} has been running for {waited}"

    def _say(self, line: str) -> None:
        self.progress(line)
        self._spoke = time.monotonic()
