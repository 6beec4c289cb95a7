"""Tensor parallelism: the pairs of conjugate functions around sharded matrices, vocabulary-parallel ends.

Shoeybi et al. 2019 (identity and all-reduce), Korthikanti et al. 2022 (sequence parallelism: all-gather and
reduce-scatter). Parameters are plain local shards, so that a forward costs no dispatch beyond PyTorch's own.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from meshwright.trainer.clock import Clock
from meshwright.trainer.models.names import bounds
from meshwright.trainer.parallel.groups import Group, all_reduce, gather_dim1, scatter_sum_dim1


@dataclass(frozen=True)
class TensorGroup:
    """The tensor ranks of one stage. `sequence` shares out the positions of the residual stream as well."""

    group: Group
    clock: Clock
    sequence: bool = False

    @property
    def size(self) -> int:
        """Tensor degree."""
        return self.group.size

    @property
    def rank(self) -> int:
        """This rank's position."""
        return self.group.rank

    def enter(self, x: Tensor) -> Tensor:
        """From the residual stream into a sharded region: [B, Z, D] -> [B, S, D]; gradients are summed."""
        if self.size == 1:
            return x
        function = _GatherSequence if self.sequence else _Enter
        out: Tensor = function.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def leave(self, x: Tensor) -> Tensor:
        """Partial sums of a sharded region back to the residual stream: [B, S, D] -> [B, Z, D]."""
        if self.size == 1:
            return x
        function = _ScatterSequence if self.sequence else _Leave
        out: Tensor = function.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def embedding(self, tokens: Tensor, weight: Tensor, vocab: int, padding: int | None = None) -> Tensor:
        """Rows of a vocabulary-sharded table: tokens [B, S] -> [B, Z, D]; that of `padding` gets no gradient."""
        if self.size == 1:
            return F.embedding(tokens, weight, padding)
        first, last = bounds(vocab, self.size, self.rank)
        elsewhere = (tokens < first) | (tokens >= last)
        own = padding - first if padding is not None and first <= padding < last else None
        local = F.embedding((tokens - first).masked_fill(elsewhere, 0), weight, own)
        return self.leave(local.masked_fill(elsewhere.unsqueeze(-1), 0.0))

    def cross_entropy(self, logits: Tensor, labels: Tensor, vocab: int) -> Tensor:
        """Summed cross entropy, fp32: this rank's logits [T, V / tp] and labels [T]; labels below 0 do not count."""
        if self.size == 1:
            return F.cross_entropy(logits.float(), labels.clamp(min=-1), reduction="sum", ignore_index=-1)
        rows = bounds(vocab, self.size, self.rank)
        loss: Tensor = _VocabularyLoss.apply(logits, labels, rows, self)  # type: ignore[no-untyped-call]
        return loss


class _Enter(torch.autograd.Function):
    """Identity forward, all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: TensorGroup) -> Tensor:
        ctx.tensor = tensor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        tensor: TensorGroup = ctx.tensor
        grad = grad.clone(memory_format=torch.contiguous_format)
        return all_reduce(grad, tensor.group, tensor.clock, "tp grad"), None


class _Leave(torch.autograd.Function):
    """All-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: TensorGroup) -> Tensor:
        return all_reduce(x.clone(memory_format=torch.contiguous_format), tensor.group, tensor.clock, "tp sum")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _GatherSequence(torch.autograd.Function):
    """All-gather of positions forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: TensorGroup) -> Tensor:
        ctx.tensor = tensor
        return gather_dim1(x, tensor.group, tensor.clock, "sp gather")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return scatter_sum_dim1(grad, ctx.tensor.group, ctx.tensor.clock, "sp grad scatter"), None


class _ScatterSequence(torch.autograd.Function):
    """Reduce-scatter of positions forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: TensorGroup) -> Tensor:
        ctx.tensor = tensor
        return scatter_sum_dim1(x, tensor.group, tensor.clock, "sp scatter")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return gather_dim1(grad, ctx.tensor.group, ctx.tensor.clock, "sp grad gather"), None


class _VocabularyLoss(torch.autograd.Function):
    """Cross entropy over a sharded vocabulary without gathering logits: a maximum and two sums a token travel."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, rows: tuple[int, int], tensor: TensorGroup) -> Tensor:
        group, clock = tensor.group, tensor.clock
        wide = logits.float()
        peak = all_reduce(wide.amax(dim=-1), group, clock, "loss max", dist.ReduceOp.MAX)
        wide = wide - peak.unsqueeze(-1)
        local = labels - rows[0]
        mine = (labels >= rows[0]) & (labels < rows[1])
        local = local.masked_fill(~mine, 0)
        target = wide.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(~mine, 0.0)
        wide = wide.exp_()
        sums = all_reduce(torch.stack((wide.sum(dim=-1), target)), group, clock, "loss sum")
        counted = labels >= 0
        ctx.save_for_backward(wide.div_(sums[0].unsqueeze(-1)), local, mine, counted)
        ctx.dtype = logits.dtype
        return ((sums[0].log() - sums[1]) * counted).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        probabilities, local, mine, counted = ctx.saved_tensors
        out = probabilities.clone()
        out.scatter_add_(-1, local.unsqueeze(-1), -mine.to(out.dtype).unsqueeze(-1))
        return (out * (counted.unsqueeze(-1) * grad)).to(ctx.dtype), None, None, None
