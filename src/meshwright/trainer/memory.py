"""What one rank really holds: bytes of weights, gradients and optimizer state, and the process's peak size."""

import resource
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from meshwright.basics.quantities import KIB
from meshwright.files.run import RankMemory


def rank_memory(rank: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> RankMemory:
    """The tensors of this rank's own shards, counted after a step; `peak_rss` is the whole process's."""
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return RankMemory(
        rank=rank,
        weights=sum(p.nbytes for p in parameters.values()),
        gradients=sum(p.grad.nbytes for p in parameters.values() if p.grad is not None),
        optimizer=sum(state.nbytes for state in states),
        peak_rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
    )
