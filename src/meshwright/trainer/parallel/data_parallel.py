"""Replicated data parallelism: gradients live in flat buckets and are summed over the replicas once a step."""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from meshwright.basics.quantities import MIB
from meshwright.timeline.columns import Kind
from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.groups import Group


class GradientBuckets:
    """Flat gradient buffers of about `bucket_mib`; each parameter's `.grad` is a view, so nothing is copied.

    Parameters fill the buckets in reverse order, the order in which a backward finishes them.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], bucket_mib: float, group: Group, clock: Clock) -> None:
        self.group, self.clock = group, clock
        self.buckets: list[torch.Tensor] = []
        limit, held, size = bucket_mib * MIB, list[nn.Parameter](), 0
        for parameter in reversed(parameters):
            bytes_of = parameter.numel() * parameter.element_size()
            if held and size + bytes_of > limit:
                self._close(held)
                held, size = [], 0
            held.append(parameter)
            size += bytes_of
        if held:
            self._close(held)

    def _close(self, parameters: Sequence[nn.Parameter]) -> None:
        flat = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        offset = 0
        for parameter in parameters:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        self.buckets.append(flat)

    def zero(self) -> None:
        """Forget the last step's gradients, keeping the buffers."""
        for bucket in self.buckets:
            bucket.zero_()

    def exchange(self) -> None:
        """Sum every bucket over the replicas; all are under way at once."""
        if self.group.size == 1:
            return
        pending = [
            (bucket, time.monotonic_ns(), dist.all_reduce(bucket, group=self.group.handle, async_op=True))
            for bucket in self.buckets
        ]
        for bucket, start, work in pending:
            assert work is not None
            work.wait()
            self.clock.recorder.add(
                start, time.monotonic_ns(), Kind.COMMUNICATION, "dp all-reduce", group=self.group.ranks,
                size=bucket.numel() * bucket.element_size(), collective=True,
            )  # fmt: skip
