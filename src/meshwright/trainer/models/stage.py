"""What every model of the trainer is: the units of one stage and one tensor rank's share of their parameters."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from meshwright.model.architecture import Architecture
from meshwright.trainer.parallel.tensor_parallel import TensorGroup

UnitRunner = Callable[[str, Callable[[Tensor], Tensor], Tensor], Tensor]
"""Runs one unit on the residual stream: where recompute and per-unit timing wrap the computation."""


def run_plainly(name: str, unit: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The unit runner that adds nothing."""
    return unit(x)


class StageModel(nn.Module):
    """The units of one stage. First stage: tokens [B, S] int64 in. Others: hidden [B, Z, D] in.

    Out: hidden [B, Z, D], or with the head the summed cross entropy over the labels [B, S] (a scalar, fp32; labels
    below zero do not count) when labels are given, else this rank's logits [B, S, V / tp].
    Parameters are found under `model.embed_tokens`, `model.layers.N`, `model.norm` and `lm_head` in every family.
    """

    model: nn.Module
    lm_head: nn.Linear
    initializer_range: float  # standard deviation of random weights
    norm_start: float = 1.0  # initial weight of norms
    padding: int | None = None  # a token whose embedding is not trained

    def __init__(self, arch: Architecture, tensor: TensorGroup, units: Sequence[str]) -> None:
        super().__init__()
        self.arch, self.tensor, self.units = arch, tensor, tuple(units)
        self.has_embedding, self.has_head = "embed" in units, "head" in units
        self.run: UnitRunner = run_plainly
        self.dtype = torch.float32  # of the residual stream
        # [B, S], of the micro-batch that is run next: places of tokens in their documents, of which none sees another;
        # None: each sample is one stretch of text.
        self.positions: Tensor | None = None

    def embed(self, tokens: Tensor) -> Tensor:
        """Unit `embed`: tokens [B, S] -> hidden [B, Z, D]."""
        raise NotImplementedError

    def layers(self, x: Tensor) -> Tensor:
        """The units of layers that the stage holds, each under `run`: [B, Z, D] -> [B, Z, D]."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """Final norm and output matrix: hidden [B, Z, D] -> this rank's logits [B, S, V / tp]."""
        raise NotImplementedError

    def whole_shape(self, name: str, local: Tensor) -> tuple[int, ...]:
        """The shape of the whole parameter of which `local` is one tensor rank's share."""
        raise NotImplementedError

    def loss(self, x: Tensor, labels: Tensor) -> Tensor:
        """Unit `head`: hidden [B, Z, D] and labels [B, S] -> summed cross entropy, a scalar."""
        return self.tensor.cross_entropy(self.logits(x).flatten(0, 1), labels.flatten(), self.arch.vocab)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        if self.has_embedding:
            x = self.run("embed", self.embed, x)
        x = self.layers(x)
        if not self.has_head:
            return x
        return self.logits(x) if labels is None else self.run("head", partial(self.loss, labels=labels), x)


def sight(positions: Tensor) -> Tensor:
    """Which tokens see which: positions [B, S] in documents -> bool [B, 1, S, S], causal and inside a document."""
    document = (positions == 0).cumsum(1)
    same = document[:, None, :, None] == document[:, None, None, :]
    return same & torch.ones(same.shape[-2:], dtype=torch.bool, device=same.device).tril()
