"""Replicas that hold everything (ZeRO-0): gradients lie in flat buffers that are summed in place, once a step."""

from collections.abc import Mapping, Sequence

import torch.distributed as dist
from torch import Tensor, nn

from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.buckets import Bucket, Flight, GradientBuckets
from meshwright.trainer.parallel.groups import Group


def flat_gradients(parameters: Mapping[str, nn.Parameter]) -> Tensor:
    """One buffer of zeros of which every parameter's `.grad` is a view, so that nothing is copied."""
    first = next(iter(parameters.values()))
    flat = first.new_zeros(sum(parameter.numel() for parameter in parameters.values()))
    offset = 0
    for parameter in parameters.values():
        parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    return flat


class _AllReduce:
    """Sums a flat bucket in place."""

    name, at_once = "dp all-reduce", None

    def __init__(self, group: Group) -> None:
        self.group = group
        self._flat: dict[int, Tensor] = {}

    def clear(self, bucket: Bucket) -> None:
        if id(bucket) in self._flat:
            self._flat[id(bucket)].zero_()
        else:
            self._flat[id(bucket)] = flat_gradients(bucket.parameters)

    def send(self, bucket: Bucket) -> Flight:
        flat = self._flat[id(bucket)]
        work = dist.all_reduce(flat, group=self.group.handle, async_op=True)
        assert work is not None
        # On GPUs the future is done when the kernel is queued.
        return Flight(work, landed=work.get_future() if flat.device.type == "cpu" else None)

    def land(self, bucket: Bucket, flight: Flight) -> None:
        """The sums are where the gradients were."""


class Replicated:
    """Every rank updates every parameter."""

    def __init__(
        self, sections: Sequence[Mapping[str, nn.Parameter]], bucket_mib: float, overlap: bool, group: Group,
        clock: Clock,
    ) -> None:  # fmt: skip
        self.parameters = self.owned = {name: p for section in sections for name, p in section.items()}
        self.buckets = GradientBuckets(sections, bucket_mib, overlap, "step", _AllReduce(group), clock)

    def start(self) -> None:
        """A new step."""
        self.buckets.start()

    def after_backward(self) -> None:
        """Nothing leaves between micro-batches, other than by itself."""

    def exchange(self) -> None:
        """Complete all gradients."""
        self.buckets.exchange()

    def gather(self) -> None:
        """Every rank has updated its own copy."""
