"""Replicated data parallelism: gradients live in flat buckets and are summed over the replicas once a step.

With `overlap`, a bucket leaves as soon as the step's last backward has finished all its gradients (Li et al. 2020).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch.distributed as dist
from torch import Tensor, nn

from meshwright.basics.quantities import MIB
from meshwright.timeline.columns import Kind
from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.groups import Group


@dataclass
class Bucket:
    """One flat gradient buffer, and the exchange of it that is under way."""

    flat: Tensor
    parameters: list[nn.Parameter]
    arrivals: int = 0  # gradients added to it in this step
    expected: int | None = None  # in a whole step, as the first step counted; None before
    work: dist.Work | None = None
    times: list[int] = field(default_factory=list)  # start and end, ns


class GradientBuckets:
    """Flat gradient buffers of about `bucket_mib`; each parameter's `.grad` is a view, so nothing is copied.

    Parameters fill the buckets in reverse order, the order in which a backward finishes them.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], bucket_mib: float, overlap: bool, group: Group, clock: Clock
    ) -> None:
        self.group, self.clock = group, clock
        self.buckets: list[Bucket] = []
        held: list[nn.Parameter] = []
        size = 0
        for parameter in reversed(parameters):
            if held and size + parameter.nbytes > bucket_mib * MIB:
                self._close(held)
                held, size = [], 0
            held.append(parameter)
            size += parameter.nbytes
        self._close(held)
        if overlap and group.size > 1:
            for bucket in self.buckets:
                for parameter in bucket.parameters:
                    arrived = partial(self._arrived, bucket)
                    parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]

    def _close(self, parameters: list[nn.Parameter]) -> None:
        flat = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        offset = 0
        for parameter in parameters:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        self.buckets.append(Bucket(flat, parameters))

    def zero(self) -> None:
        """Forget the last step's gradients, keeping the buffers."""
        for bucket in self.buckets:
            bucket.flat.zero_()
            bucket.arrivals = 0

    def exchange(self) -> None:
        """Sum over the replicas every bucket that is not under way yet, and wait for all."""
        if self.group.size == 1:
            return
        for bucket in self.buckets:
            bucket.expected = bucket.arrivals or None
            if bucket.work is None:
                self._send(bucket)
        for bucket in self.buckets:
            assert bucket.work is not None
            bucket.work.wait()
            bucket.work = None
            self.clock.recorder.add(
                bucket.times[0], bucket.times[-1] if len(bucket.times) > 1 else time.monotonic_ns(),
                Kind.COMMUNICATION, "dp all-reduce", group=self.group.ranks, size=bucket.flat.nbytes, collective=True,
            )  # fmt: skip

    def _arrived(self, bucket: Bucket, _: Tensor) -> None:
        """A gradient was added; the last one of the step sends the bucket on its way."""
        bucket.arrivals += 1
        if bucket.arrivals == bucket.expected:
            self._send(bucket)

    def _send(self, bucket: Bucket) -> None:
        bucket.times = [time.monotonic_ns()]
        bucket.work = dist.all_reduce(bucket.flat, group=self.group.handle, async_op=True)
        assert bucket.work is not None
        if bucket.flat.device.type == "cpu":  # on GPUs the future is done when the kernel is queued
            times = bucket.times
            bucket.work.get_future().add_done_callback(lambda _: times.append(time.monotonic_ns()))
