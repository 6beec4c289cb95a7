"""What recompute keeps, in bytes counted on real tensors, and that it changes no gradient."""

import pytest

from meshwright.model.activations import unit_activation_bytes
from meshwright.model.training import Training
from meshwright.model.units import units_of

from .plans import variant

pytest.importorskip("torch", reason="training needs meshwright[train]")

import torch
from torch import Tensor, nn

from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.memory import PeakTensors
from meshwright.trainer.models.decoder import Decoder, build
from meshwright.trainer.models.families import numerics
from meshwright.trainer.models.initial import initialize
from meshwright.trainer.parallel.groups import alone
from meshwright.trainer.parallel.recompute import unit_runner
from meshwright.trainer.parallel.tensor_parallel import TensorGroup
from meshwright.trainer.spans import SpanRecorder

BATCH, LENGTH = 2, 48
PLAIN = variant(heads=4, kv_heads=4)
GROUPED = variant(heads=8, kv_heads=2, head_dim=8, ffn_hidden=200)
NORMED = variant(family="qwen3", qk_norm=True, kv_heads=4)


def layer(arch, unit: str, mode: str) -> Decoder:
    clock = Clock(SpanRecorder(0))
    model = build(arch, numerics(arch), TensorGroup(alone(), clock), [unit])
    initialize(model, torch.device("cpu"), seed=3)
    again = frozenset([unit]) if mode == "full" else frozenset()
    model.run = unit_runner(UnitMeter(clock), again, selective=mode == "selective")
    model.rope(LENGTH, torch.device("cpu"))
    return model


def kept_bytes(model: Decoder, x: Tensor) -> int:
    """Bytes alive between forward and backward, besides weights and what the unit gives to the next one."""
    tensors = PeakTensors([x, *model.parameters()])
    before = tensors.now
    with tensors:
        out = model(x)
    return tensors.now - before - out.nbytes


@pytest.mark.parametrize("arch", [PLAIN, GROUPED, NORMED], ids=["plain", "grouped", "head norms"])
@pytest.mark.parametrize("unit", ["layers.1.attn", "layers.1.ffn"])
def test_selective_keeps_what_the_model_says(arch, unit: str) -> None:
    x = torch.randn(BATCH, LENGTH, arch.hidden, requires_grad=True)
    named = next(found for found in units_of(arch) if found.name == unit)
    said = unit_activation_bytes(arch, named, Training(precision="fp32"), BATCH, LENGTH, "selective")
    assert kept_bytes(layer(arch, unit, "selective"), x) == said - x.nbytes  # the unit's input is alive already
    assert kept_bytes(layer(arch, unit, "full"), x) == 0
    assert kept_bytes(layer(arch, unit, "none"), x) > said - x.nbytes


@pytest.mark.parametrize("mode", ["selective", "full"])
@pytest.mark.parametrize("unit", ["layers.1.attn", "layers.1.ffn"])
@pytest.mark.parametrize("halves", [False, True])
def test_recompute_changes_no_gradient(mode: str, unit: str, halves: bool) -> None:
    """`halves`: the inputs' gradient first, then the weights', as a split backward asks for them."""
    found = []
    for how in ("none", mode):
        model = layer(NORMED, unit, how)
        x = torch.randn(BATCH, LENGTH, NORMED.hidden, generator=torch.Generator().manual_seed(1)).requires_grad_()
        loss, weights = model(x).square().sum(), list(model.parameters())
        if halves:
            (grad,) = torch.autograd.grad(loss, [x], retain_graph=True)
            found.append([grad, *torch.autograd.grad(loss, weights)])
        else:
            found.append(torch.autograd.grad(loss, [x, *weights]))
    for expected, grad in zip(*found, strict=True):
        torch.testing.assert_close(grad, expected, rtol=0, atol=0)


def test_a_result_changed_after_the_forward_is_noticed() -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.between: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.between.append(self.first(x))
            return self.second(torch.relu(self.between[-1]))

    careless = Careless()
    run = unit_runner(UnitMeter(Clock(SpanRecorder(0))), frozenset(), selective=True)
    out = run("layers.0.ffn", careless, torch.randn(4, 8, requires_grad=True))
    with torch.no_grad():
        careless.between[0].add_(1)
    with pytest.raises(RuntimeError, match="was changed since"):
        out.sum().backward()
