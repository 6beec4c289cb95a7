"""One training step's arithmetic after the backward: exchanges, one global norm, clipping, learning rate."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from meshwright.model.training import Training
from meshwright.trainer.clock import Clock
from meshwright.trainer.models.names import gradient_is_partial, split_dim
from meshwright.trainer.parallel.groups import all_reduce
from meshwright.trainer.parallel.mesh import Mesh

TIED = ("model.embed_tokens.weight", "lm_head.weight")


def sum_partial_gradients(parameters: Mapping[str, nn.Parameter], mesh: Mesh, sp: bool, clock: Clock) -> None:
    """Complete the gradients of copied parameters of which each tensor rank has computed only a part."""
    partial = [p.grad for name, p in parameters.items() if gradient_is_partial(name, sp) and p.grad is not None]
    if mesh.tp.size == 1 or not partial:
        return
    flat = all_reduce(torch.cat([grad.flatten() for grad in partial]), mesh.tp, clock, "tp norm gradients")
    totals = torch.split(flat, [grad.numel() for grad in partial])
    for grad, total in zip(partial, totals, strict=True):
        grad.copy_(total.view_as(grad))


def exchange_tied(parameters: Mapping[str, nn.Parameter], mesh: Mesh, tied: bool, clock: Clock) -> None:
    """Sum the gradients of the two copies of a tied matrix that lie on different pipeline ranks, once a step."""
    if not tied or mesh.ends.size == 1:
        return
    copy = next(parameters[name] for name in TIED if name in parameters)
    assert copy.grad is not None
    all_reduce(copy.grad, mesh.ends, clock, "tied embedding")


def gradients(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The gradients at hand, by parameter name."""
    return {name: p.grad for name, p in parameters.items() if p.grad is not None}


def own_square_sum(tensors: Mapping[str, Tensor], mesh: Mesh, tied: bool) -> Tensor:
    """This rank's contribution to the squared global norm of gradients (or weights), fp64, each counted once.

    Shards count on every tensor rank, copies on tensor rank 0 only; rows of a ZeRO shard on every rank that has some,
    replicas of them once; the second copy of a tied matrix not at all.
    """
    counted = [
        tensor
        for name, tensor in tensors.items()
        if mesh.copies.rank == 0
        and (split_dim(name) is not None or mesh.tp.rank == 0)
        and not (tied and mesh.ends.size > 1 and name == TIED[1])
    ]
    if not counted:
        return torch.zeros((), dtype=torch.float64, device=next(iter(tensors.values())).device)
    return torch.stack(torch._foreach_norm(counted)).double().square().sum()


def clip(parameters: Mapping[str, nn.Parameter], norm: float, limit: float, scale: float = 1.0) -> None:
    """Scale all gradients down so that the global norm is at most `limit`; 0 switches clipping off.

    The same factor as `torch.nn.utils.clip_grad_norm_`: limit / (norm + 1e-6). The gradients at hand are `scale` times
    the true ones, whose norm is `norm`.
    """
    factor = limit / (norm + 1e-6)
    factor = (factor if limit > 0 and factor < 1 else 1.0) / scale
    if factor != 1:
        torch._foreach_mul_(list(gradients(parameters).values()), factor)


def learning_rate(training: Training, step: int) -> float:
    """The rate of step 0, 1, ...: linear warm-up, then constant, or cosine or linear decay to 0 at `steps`; or constant
    ("wsd", Hu et al. 2024, section 4) until the last `lr_decay` of the steps, in which it falls to 0 linearly."""
    if step < training.warmup:
        return training.lr * (step + 1) / training.warmup
    if training.lr_schedule == "constant":
        return training.lr
    begin = training.warmup
    if training.lr_schedule == "wsd":
        begin = max(begin, training.steps - max(1, round(training.lr_decay * training.steps)))
    done = min(1.0, max(0.0, (step - begin) / max(1, training.steps - begin)))
    return training.lr * (0.5 * (1 + math.cos(math.pi * done)) if training.lr_schedule == "cosine" else 1 - done)


def make_optimizer(parameters: Mapping[str, nn.Parameter], training: Training) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019) or SGD; weight decay on matrices only."""
    held = [p for p in parameters.values() if p.numel()]  # a rank may have no rows of a parameter
    matrices, vectors = [p for p in held if p.ndim > 1], [p for p in held if p.ndim == 1]
    groups = [
        {"params": members, "weight_decay": decay}
        for members, decay in ((matrices, training.weight_decay), (vectors, 0.0))
        if members
    ]
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.lr)
    return torch.optim.AdamW(groups, lr=training.lr, betas=training.betas, fused=True)
