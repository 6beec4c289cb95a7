"""A process group with what collectives need to know of it, and the collectives themselves, timed by the clock."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.trainer.clock import Clock


@dataclass(frozen=True)
class Group:
    """Ranks that communicate. `handle` is None for a group of one, which needs no communication."""

    handle: dist.ProcessGroup | None
    ranks: tuple[int, ...]  # global ranks
    rank: int  # this process's position among them

    @property
    def size(self) -> int:
        """How many ranks."""
        return len(self.ranks)


def alone(rank: int = 0) -> Group:
    """The group of one."""
    return Group(None, (rank,), 0)


def all_reduce(x: Tensor, group: Group, clock: Clock, name: str, op: Any = dist.ReduceOp.SUM) -> Tensor:
    """Reduce `x` in place over the group; every rank gets the same bits."""
    if group.size > 1:
        with clock.collective(name, group.ranks, x.numel() * x.element_size()):
            dist.all_reduce(x, op=op, group=group.handle)
    return x


def gather_dim1(x: Tensor, group: Group, clock: Clock, name: str) -> Tensor:
    """Every rank's [B, Z, ...] joined along dimension 1: [B, Z * size, ...]."""
    parts = x.new_empty((group.size, *x.shape))
    with clock.collective(name, group.ranks, parts.numel() * parts.element_size()):
        dist.all_gather_single(parts.view(-1, *x.shape[1:]), x.contiguous(), group=group.handle)
    return torch.cat(list(parts), dim=1)


def scatter_sum_dim1(x: Tensor, group: Group, clock: Clock, name: str) -> Tensor:
    """The sum over the group of [B, S, ...], of which each rank keeps its part of dimension 1: [B, S / size, ...]."""
    parts = torch.stack(x.chunk(group.size, dim=1))  # [size, B, Z, ...]
    out = torch.empty_like(parts[0])
    with clock.collective(name, group.ranks, parts.numel() * parts.element_size()):
        dist.reduce_scatter_single(out, parts.view(-1, *parts.shape[2:]), group=group.handle)
    return out
