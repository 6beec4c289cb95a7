"""ZeRO-1 and ZeRO-2 (Rajbhandari et al. 2020): whole weights everywhere, each rank updates its rows of them.

Not FSDP2 with parameters that stay gathered: that holds the rows a second time beside the whole weights, and gathers
in the first forward. Not ZeroRedundancyOptimizer: it sums gradients over all ranks as DDP does, and hands out whole
parameters. Here the optimizer's parameters are views of the rows, gradients are reduce-scattered, and the weights are
gathered once, after the update. ZeRO-1 keeps a whole gradient and exchanges once a step. ZeRO-2 keeps the rows of it
only, and exchanges in every micro-batch; with "step" it is ZeRO-1 but for its name, as whole gradients are needed then.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright.layout.degrees import Exchange
from meshwright.trainer.clock import Clock
from meshwright.trainer.parallel.buckets import Bucket, Flight, GradientBuckets
from meshwright.trainer.parallel.groups import Group, all_reduce
from meshwright.trainer.parallel.replicated import flat_gradients
from meshwright.trainer.parallel.rows import own_rows, pack, row_elements, unpack


class _ReduceScatter:
    """Sums a bucket over the shards' ranks, each of which gets its rows; then those over the copies (HSDP)."""

    name, at_once = "dp reduce-scatter", 2

    def __init__(
        self, owned: Mapping[str, nn.Parameter], whole_gradients: bool, group: Group, copies: Group, clock: Clock
    ) -> None:
        self._owned, self._whole, self.group, self._copies, self._clock = owned, whole_gradients, group, copies, clock
        self._flat: dict[int, Tensor] = {}

    def clear(self, bucket: Bucket) -> None:
        if id(bucket) in self._flat:
            self._flat[id(bucket)].zero_()
            return
        if self._whole:
            self._flat[id(bucket)] = flat_gradients(bucket.parameters)
            for name, parameter in bucket.parameters.items():
                assert parameter.grad is not None
                self._owned[name].grad = own_rows(parameter.grad, self.group.size, self.group.rank)
        else:
            self._flat[id(bucket)] = flat_gradients({name: self._owned[name] for name in bucket.parameters})

    def send(self, bucket: Bucket) -> Flight:
        parameters = list(bucket.parameters.values())
        packed = pack([p.grad for p in parameters], self._widths(bucket), self.group.size, parameters[0].detach())
        if not self._whole:
            for parameter in parameters:
                parameter.grad = None
        out = packed.new_empty(packed.shape[1])
        work = dist.reduce_scatter_single(out, packed.view(-1), group=self.group.handle, async_op=True)
        return Flight(work, (packed, out))

    def land(self, bucket: Bucket, flight: Flight) -> None:
        out = all_reduce(flight.buffers[1], self._copies, self._clock, "dp copies")
        for name, rows in zip(bucket.parameters, torch.split(out, self._widths(bucket)), strict=True):
            grad = self._owned[name].grad
            assert grad is not None
            mine = rows[: grad.numel()].view_as(grad)
            grad.copy_(mine) if self._whole else grad.add_(mine)

    def _widths(self, bucket: Bucket) -> list[int]:
        return [row_elements(parameter, self.group.size) for parameter in bucket.parameters.values()]


class Sharded:
    """Each rank updates its rows of every parameter."""

    def __init__(
        self, sections: Sequence[Mapping[str, nn.Parameter]], bucket_mib: float, overlap: bool, exchange: Exchange,
        shard: Group, copies: Group, clock: Clock,
    ) -> None:  # fmt: skip
        self.parameters = {name: p for section in sections for name, p in section.items()}
        self._shard, self._clock = shard, clock
        # Views: an update of the rows is one of the whole weights, which exist once.
        self.owned = {
            name: nn.Parameter(own_rows(p.detach(), shard.size, shard.rank)) for name, p in self.parameters.items()
        }
        carrier = _ReduceScatter(self.owned, exchange == "step", shard, copies, clock)
        self.buckets = GradientBuckets(sections, bucket_mib, overlap, exchange, carrier, clock)

    def start(self) -> None:
        """A new step."""
        self.buckets.start()

    def after_backward(self) -> None:
        """Send what must not be kept whole."""
        self.buckets.after_backward()

    def exchange(self) -> None:
        """Complete the gradients of the rows."""
        self.buckets.exchange()

    @torch.no_grad()
    def gather(self) -> None:
        """Fetch the rows that other ranks have updated, a bucket at a time."""
        size, rank = self._shard.size, self._shard.rank
        for bucket in self.buckets.buckets:
            wholes = [parameter.detach() for parameter in bucket.parameters.values()]
            widths = [row_elements(whole, size) for whole in wholes]
            mine = pack([own_rows(whole, size, rank) for whole in wholes], widths, 1, wholes[0])
            packed = mine.new_empty((size, mine.numel()))
            with self._clock.collective("dp gather", self._shard.ranks, packed.nbytes):
                dist.all_gather_single(packed.view(-1), mine.view(-1), group=self._shard.handle)
            unpack(packed, wholes, widths)
