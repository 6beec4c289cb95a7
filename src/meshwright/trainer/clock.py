"""The clock of one rank: stretches stage actions in dilated and emulated mode, and records what was done when.

Measured: real time. Dilated: each stretch of compute between two waits lasts K times the thread's own CPU time, so
that more ranks than cores still show real proportions. Emulated: a stage action lasts what its units are said to
cost. Compute is timed by the calling thread's CPU clock (on CPU, autograd runs in it), so neither waiting for peers
nor being scheduled away counts as work.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from meshwright.basics.figures import Mode
from meshwright.timeline.columns import Action, Kind
from meshwright.trainer.spans import SpanRecorder

Cost = Callable[[Action, int], float]
"""Stated device seconds of an action on a stage, for emulated mode."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How time passes during a phase."""

    mode: Mode = "measured"
    dilation: float = 1.0  # K: wall seconds a device second
    cost: Cost | None = None


def default_dilation(ranks: int, cores: int) -> float:
    """K with which ranks that share cores rarely contend: twice their number a core, at least 4."""
    return max(4.0, 2.0 * ranks / cores)


class Clock:
    """Wraps stage actions and collectives of one rank."""

    def __init__(self, recorder: SpanRecorder, wait_for_device: Callable[[], None] | None = None) -> None:
        self.recorder = recorder
        self.pace = Pace()
        self.doing = ""  # the action in progress, for error messages
        self._wait_for_device = wait_for_device
        self._outside_cpu = 0
        self._action: tuple[Action, int, int] | None = None
        self._wall = self._cpu = 0  # start of the running compute segment
        self._spent = 0  # wall of the action's earlier segments

    def busy_ns(self) -> int:
        """Nanoseconds this rank has computed so far, leaving out collectives. Only differences mean anything."""
        if self._wait_for_device is None:
            return time.thread_time_ns() - self._outside_cpu
        self._wait_for_device()
        return time.monotonic_ns() - self._outside_cpu

    @contextmanager
    def action(self, action: Action, stage: int = -1, micro_batch: int = -1) -> Iterator[None]:
        """A stage action (or the optimizer's step): recorded as one compute span between two waits."""
        where = f", stage {stage}, micro-batch {micro_batch}" if stage >= 0 else ""
        self.doing = f"{action.name.lower().replace('_', ' ')}{where}"
        self._action, self._spent = (action, stage, micro_batch), 0
        self._begin()
        yield
        self._finish(last=True)
        self._action, self.doing = None, ""

    @contextmanager
    def collective(self, name: str, group: Sequence[int], size: int) -> Iterator[None]:
        """A collective over the global ranks `group`, `size` bytes; inside an action it interrupts the compute."""
        if self._action is not None:
            self._finish(last=False)
        cpu, start = self._raw(), time.monotonic_ns()
        yield
        end = time.monotonic_ns()
        self._outside_cpu += self._raw() - cpu
        action, stage, micro_batch = self._action or (Action.NONE, -1, -1)
        self.recorder.add(
            start, end, Kind.COMMUNICATION, name, action=action, group=group, size=size, stage=stage,
            micro_batch=micro_batch, collective=True,
        )  # fmt: skip
        if self._action is not None:
            self._begin()

    @contextmanager
    def waiting(self, name: str, peer: int, size: int, action: Action, stage: int, micro_batch: int) -> Iterator[None]:
        """Waiting for a message from global rank `peer`. Outside actions, so nothing is stretched."""
        self.doing = f"{name} from rank {peer}, stage {stage}, micro-batch {micro_batch}"
        start = time.monotonic_ns()
        yield
        self.recorder.add(
            start, time.monotonic_ns(), Kind.COMMUNICATION, name, action=action, group=(peer, self.recorder.rank),
            size=size, stage=stage, micro_batch=micro_batch,
        )  # fmt: skip
        self.doing = ""

    def _raw(self) -> int:
        if self._wait_for_device is None:
            return time.thread_time_ns()
        self._wait_for_device()
        return time.monotonic_ns()

    def _begin(self) -> None:
        self._cpu, self._wall = self.busy_ns(), time.monotonic_ns()

    def _finish(self, last: bool) -> None:
        """End a compute segment: stretch it to its length and record it."""
        assert self._action is not None
        action, stage, micro_batch = self._action
        busy, now = self.busy_ns() - self._cpu, time.monotonic_ns()
        end = now
        if self.pace.mode == "dilated":
            end = self._wall + round(self.pace.dilation * busy)
        elif self.pace.mode == "emulated" and self.pace.cost is not None and last:
            end = self._wall + max(0, round(self.pace.cost(action, stage) * 1e9) - self._spent)
        if end > now:
            time.sleep((end - now) * 1e-9)
        self._spent += end - self._wall
        self.recorder.add(
            self._wall, end, Kind.COMPUTE, action.name.lower(), action=action, stage=stage, micro_batch=micro_batch
        )


class UnitMeter:
    """Device seconds of each unit, forward and backward, summed over the micro-batches of this rank.

    Forward is timed around the unit. Backward: a hook on the tensor between two units fires when its gradient is
    complete, which ends the later unit and begins the earlier. A weight-only backward passes no such tensor: its time
    is shared out by `weights` (elements of the unit's matrices).
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on = False
        self.weights: Mapping[str, float] = {}
        self.forward_ns: dict[str, int] = {}
        self.backward_ns: dict[str, int] = {}
        self.recompute_ns: dict[str, int] = {}
        self.forwards: dict[str, int] = {}
        self.backwards: dict[str, int] = {}
        self._open: str | None = None
        self._since = 0
        self._edges = 0

    def reset(self) -> None:
        """Forget what was measured."""
        for sums in (self.forward_ns, self.backward_ns, self.recompute_ns, self.forwards, self.backwards):
            sums.clear()

    @contextmanager
    def forward(self, unit: str) -> Iterator[None]:
        """Times one unit's forward."""
        start = self.clock.busy_ns()
        yield
        if self.on:
            self.forward_ns[unit] = self.forward_ns.get(unit, 0) + self.clock.busy_ns() - start
            self.forwards[unit] = self.forwards.get(unit, 0) + 1

    @contextmanager
    def repeated(self, unit: str) -> Iterator[None]:
        """Times what a unit computes again in its backward; nothing in its forward."""
        start = self.clock.busy_ns()
        try:
            yield
        finally:  # recompute ends by an exception of its own when all it needs is there
            if self.on and self._open is not None:
                self.recompute_ns[unit] = self.recompute_ns.get(unit, 0) + self.clock.busy_ns() - start

    def gradient_reached(self, unit: str) -> None:
        """The gradient of `unit`'s output is complete: its backward begins."""
        if self._open is not None and self._open != unit:
            self._close()
            self._edges += 1
            self._open = unit

    @contextmanager
    def backward(self, units: Sequence[str], action: Action) -> Iterator[None]:
        """Times the backward of a stage, split among its `units` (forward order)."""
        self._open, self._since, self._edges = units[-1], self.clock.busy_ns(), 0
        yield
        only = self._open
        spent = self._close()
        self._open = None
        if not self.on:
            return
        if action == Action.WEIGHT_BACKWARD and self._edges == 0 and len(units) > 1:
            self.backward_ns[only] -= spent
            total = sum(self.weights[unit] for unit in units) or 1.0
            for unit in units:
                share = round(spent * self.weights[unit] / total)
                self.backward_ns[unit] = self.backward_ns.get(unit, 0) + share
        if action != Action.WEIGHT_BACKWARD:
            for unit in units:
                self.backwards[unit] = self.backwards.get(unit, 0) + 1

    def _close(self) -> int:
        assert self._open is not None
        now = self.clock.busy_ns()
        spent, self._since = now - self._since, now
        if self.on:
            self.backward_ns[self._open] = self.backward_ns.get(self._open, 0) + spent
        return spent
