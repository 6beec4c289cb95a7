"""Jobs for a pool: a gradient of one stage overflows in chosen steps."""

import math

import torch

from meshwright.files.plan import Plan
from meshwright.trainer.engine import Engine, StepOutcome

from .holding import tokens_of


def train(plan: Plan, steps: int, bad: tuple[int, ...], name: str) -> tuple[list[StepOutcome], list[float]]:
    """Train; in the steps `bad` the gradient of `name` is infinite on the rank that has it. Outcomes, and the norm of
    this rank's weights after each step."""
    engine, now = Engine(plan, torch.device("cpu")), [-1]

    def spoil(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        if now[0] in bad:
            parameter.grad.view(-1)[0] = math.inf

    for _, model in engine.parts.models:
        for own, parameter in model.named_parameters():
            if own == name:
                parameter.register_post_accumulate_grad_hook(spoil)
    outcomes, norms = [], []
    for step in range(steps):
        now[0] = step
        outcomes.append(engine.step(step, tokens_of(plan)))
        norms.append(sum(float(p.detach().double().square().sum()) for p in engine.parts.owned.values()))
    return outcomes, norms
