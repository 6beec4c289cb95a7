"""Learning rates, clipping, and gradients that count once."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from meshwright.model.training import Training
from meshwright.trainer.step import clip, learning_rate, make_optimizer, own_square_sum


def test_learning_rate_warms_up_and_decays() -> None:
    recipe = Training(lr=1.0, warmup=4, steps=12, lr_schedule="cosine")
    rates = [learning_rate(recipe, step) for step in range(14)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert math.isclose(rates[8], 0.5)
    assert rates[12] == rates[13] == pytest.approx(0.0)
    assert learning_rate(Training(lr=1.0, warmup=0, steps=4, lr_schedule="linear"), 1) == 0.75
    assert learning_rate(Training(lr=1.0, steps=2), 100) == 1.0


def test_learning_rate_is_stable_until_the_end() -> None:
    recipe = Training(lr=1.0, warmup=2, steps=20, lr_schedule="wsd", lr_decay=0.25)
    rates = [learning_rate(recipe, step) for step in range(22)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[15] == 1.0  # 5 of 20 steps decay
    assert rates[15:] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0])
    whole = Training(lr=1.0, warmup=10, steps=20, lr_schedule="wsd", lr_decay=1.0)
    assert learning_rate(whole, 10) == 1.0  # the warm-up comes first
    assert learning_rate(whole, 15) == 0.5


def weights(**shapes: tuple[int, ...]) -> dict[str, nn.Parameter]:
    found = {name.replace("_0_", "."): nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    for parameter in found.values():
        parameter.grad = torch.ones_like(parameter)
    return found


def test_clip_equals_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = weights(a=(8, 8), b=(8,))
    for parameter in ours.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    theirs = [nn.Parameter(torch.zeros_like(p)) for p in ours.values()]
    for parameter, other in zip(theirs, ours.values(), strict=True):
        parameter.grad = other.grad.clone()
    norm = nn.utils.clip_grad_norm_(theirs, 0.5)
    clip(ours, float(norm), 0.5)
    for parameter, other in zip(theirs, ours.values(), strict=True):
        torch.testing.assert_close(other.grad, parameter.grad)
    scaled = weights(a=(8, 8), b=(8,))
    for name, parameter in scaled.items():
        parameter.grad = ours[name].grad * 1024
    clip(scaled, 0.5, 0.5, scale=1024.0)  # gradients of fp16, of a loss that was scaled
    for name, parameter in scaled.items():
        torch.testing.assert_close(parameter.grad, ours[name].grad)
    before = ours["a"].grad.clone()
    clip(ours, 100.0, 0.0)  # switched off
    assert torch.equal(ours["a"].grad, before)


def mesh(dp: int = 0, tp: int = 0, ends: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        copies=SimpleNamespace(rank=dp), tp=SimpleNamespace(rank=tp), ends=SimpleNamespace(size=ends)
    )  # fmt: skip


def test_each_gradient_counts_once() -> None:
    """Case E3: a copy on t tensor ranks must not count t times."""
    ones = {
        "model.layers.0.mlp.up_proj.weight": torch.ones(6, 2),  # sharded: 12 on each tensor rank
        "model.layers.0.input_layernorm.weight": torch.ones(5),  # copied
        "lm_head.weight": torch.ones(10, 2),
    }
    first, second = (own_square_sum(ones, mesh(tp=rank), tied=False).item() for rank in range(2))
    assert (first, second) == pytest.approx((12 + 5 + 20, 12 + 20))
    assert own_square_sum(ones, mesh(dp=1), tied=False).item() == 0
    assert own_square_sum(ones, mesh(ends=2), tied=True).item() == pytest.approx(12 + 5)  # its other copy counts
    assert own_square_sum(ones, mesh(ends=1), tied=True).item() == pytest.approx(12 + 5 + 20)


def test_only_matrices_decay() -> None:
    optimizer = make_optimizer(weights(a=(2, 2), b=(2,)), Training(weight_decay=0.1))
    assert [(group["weight_decay"], len(group["params"])) for group in optimizer.param_groups] == [(0.1, 1), (0.0, 1)]
