"""Gradients leave in buckets of a few MiB, each as soon as it is complete (Li et al. 2020).

How a bucket's gradients are summed over the replicas is its carrier's business: see `replicated` and `sharded`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright.basics.quantities import MIB
from meshwright.layout.degrees import Exchange
from meshwright.timeline.columns import Kind
from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.groups import Group


@dataclass
class Flight:
    """An exchange under way, and the buffers that it needs until it has landed."""

    work: dist.Work
    buffers: tuple[Tensor, ...] = ()
    landed: "torch.Future[Any] | None" = None  # tells when it is done, where the backend can
    times: list[int] = field(default_factory=list)  # start and end, ns


@dataclass
class Bucket:
    """Parameters whose gradients travel together, by name."""

    parameters: dict[str, nn.Parameter]
    nbytes: int
    arrivals: int = 0  # gradients added to it since it last left
    expected: int | None = None  # then it is complete; None: not known yet
    sent: int = 0  # how often it has left in this step
    flight: Flight | None = None


class Carrier(Protocol):
    """How gradients are summed over the replicas. `name` is what the exchange is called in a timeline; `at_once` how
    many may be under way, as they cost memory (None: as many as there are buckets)."""

    group: Group

    @property
    def name(self) -> str: ...
    @property
    def at_once(self) -> int | None: ...

    def clear(self, bucket: Bucket) -> None:
        """Forget the last step's gradients."""
        ...

    def send(self, bucket: Bucket) -> Flight:
        """Begin the exchange."""
        ...

    def land(self, bucket: Bucket, flight: Flight) -> None:
        """Use what has arrived; the work is done."""
        ...


class GradientBuckets:
    """Sends each bucket when its last gradient of the step (or, by `exchange`, of one backward) has been added.

    Without `overlap` all leave at the end. A gradient that arrives unannounced, as the weight half of a backward
    leaves it, waits for the end as well. `sections` keep apart what different stages hold, as stages take turns.
    """

    def __init__(
        self, sections: Sequence[Mapping[str, nn.Parameter]], bucket_mib: float, overlap: bool, exchange: Exchange,
        carrier: Carrier, clock: Clock,
    ) -> None:  # fmt: skip
        self._carrier, self._clock, self._each_time = carrier, clock, exchange == "micro-batch"
        self.buckets = [bucket for section in sections for bucket in _fill(section, bucket_mib)]
        self._flying: list[Bucket] = []
        for bucket in self.buckets:
            bucket.expected = len(bucket.parameters) if self._each_time else None
            carrier.clear(bucket)
            if overlap and carrier.group.size > 1:
                for parameter in bucket.parameters.values():
                    arrived = partial(self._arrived, bucket)
                    parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """A new step: forget the last one's gradients."""
        for bucket in self.buckets:
            bucket.arrivals = bucket.sent = 0
            self._carrier.clear(bucket)

    def expect(self, micro_batches: int, before: int) -> None:
        """After steps of `before` micro-batches the next have another number, each with as many gradients."""
        for bucket in () if self._each_time else self.buckets:
            bucket.expected = bucket.expected and bucket.expected // before * micro_batches

    def after_backward(self) -> None:
        """A backward, or a half of one, is over: when gradients travel in every micro-batch, send those at hand."""
        if self._each_time and self._carrier.group.size > 1:
            for bucket in self.buckets:
                if any(parameter.grad is not None for parameter in bucket.parameters.values()):
                    self._send(bucket)

    def exchange(self) -> None:
        """Finish the step's exchanges: afterwards every gradient is complete."""
        if self._carrier.group.size == 1:
            return
        for bucket in () if self._each_time else self.buckets:
            bucket.expected = bucket.arrivals or None  # as the first step counted
            if not bucket.sent:
                self._send(bucket)
        while self._flying:
            self._land(self._flying.pop(0))

    def _arrived(self, bucket: Bucket, _: Tensor) -> None:
        bucket.arrivals += 1
        if bucket.arrivals == bucket.expected:
            self._send(bucket)

    def _send(self, bucket: Bucket) -> None:
        if bucket in self._flying:  # of the micro-batch before
            self._flying.remove(bucket)
            self._land(bucket)
        if self._carrier.at_once is not None and len(self._flying) >= self._carrier.at_once:
            self._land(self._flying.pop(0))
        start = time.monotonic_ns()
        bucket.flight = flight = self._carrier.send(bucket)
        flight.times = times = [start]
        bucket.sent += 1
        if self._each_time:
            bucket.arrivals = 0
        self._flying.append(bucket)
        if flight.landed is not None:
            flight.landed.add_done_callback(lambda _: times.append(time.monotonic_ns()))

    def _land(self, bucket: Bucket) -> None:
        flight = bucket.flight
        assert flight is not None
        flight.work.wait()
        end = flight.times[-1] if len(flight.times) > 1 else time.monotonic_ns()
        self._clock.recorder.add(
            flight.times[0], end, Kind.COMMUNICATION, self._carrier.name, group=self._carrier.group.ranks,
            size=bucket.nbytes, collective=True,
        )  # fmt: skip
        self._carrier.land(bucket, flight)
        bucket.flight = None


def _fill(parameters: Mapping[str, nn.Parameter], bucket_mib: float) -> list[Bucket]:
    """Buckets of about `bucket_mib`, filled in reverse order: that in which a backward finishes gradients."""
    buckets: list[Bucket] = []
    for name, parameter in reversed(list(parameters.items())):
        if not buckets or buckets[-1].nbytes + parameter.nbytes > bucket_mib * MIB:
            buckets.append(Bucket({}, 0))
        buckets[-1].parameters[name] = parameter
        buckets[-1].nbytes += parameter.nbytes
    return buckets
