"""The engine: one rank's training, a step at a time."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from meshwright.files.plan import Plan
from meshwright.timeline.columns import Action
from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.models.names import split_dim
from meshwright.trainer.parallel.groups import all_reduce
from meshwright.trainer.parallel.mesh import Mesh, build_mesh
from meshwright.trainer.parallel.parallelize import Parts, parallelize
from meshwright.trainer.spans import SpanRecorder
from meshwright.trainer.step import (
    clip,
    exchange_tied,
    gradients,
    learning_rate,
    make_optimizer,
    own_square_sum,
    sum_partial_gradients,
)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did; equal on every rank but for `seconds` (wall of this rank) and `optimizer_s`."""

    loss: float  # mean over the step's trained tokens, before the update
    grad_norm: float  # global, before clipping
    lr: float
    tokens: int
    seconds: float
    optimizer_s: float  # device seconds of this rank


class Engine:
    """One rank: its part of the model, its optimizer and its clock. Collective to build and to step.

    `mesh` and `clock` are made here unless they are given (a trace gives a mesh of ranks that do not exist).
    """

    def __init__(self, plan: Plan, device: torch.device, mesh: Mesh | None = None, clock: Clock | None = None) -> None:
        self.plan, self.device = plan, device
        self.mesh: Mesh = mesh or build_mesh(plan.layout, device.type)
        if clock is None:
            wait = torch.cuda.synchronize if device.type == "cuda" else None
            clock = Clock(SpanRecorder(self.mesh.rank), wait)
        self.clock, self.recorder = clock, clock.recorder
        self.meter = UnitMeter(self.clock)
        self.parts: Parts = parallelize(plan, self.mesh, self.clock, self.meter, device)
        self.meter.weights = _matrix_sizes(self.parts)
        self.training = plan.setup.proposal.training
        self.optimizer = make_optimizer(self.parts.parameters, self.training)

    def step(self, number: int, samples: NDArray[np.int64]) -> StepOutcome:
        """Train on the global batch `samples` [global_batch, seq_len + 1]; tokens below 0 are not trained on.

        Every rank is given the same samples and takes its replica's rows.
        """
        start = time.perf_counter()
        self.recorder.step = number + 1  # people count from 1
        parameters, tied = self.parts.parameters, self.plan.setup.proposal.arch.tied
        trained = int((samples[:, 1:] >= 0).sum())
        rows = len(samples) // self.mesh.dp.size
        mine = torch.from_numpy(samples[self.mesh.dp.rank * rows : (self.mesh.dp.rank + 1) * rows]).to(self.device)
        self.parts.buckets.zero()
        loss = self.parts.pipe.run(mine[:, :-1].clamp(min=0), mine[:, 1:], 1.0 / max(1, trained))
        self.parts.buckets.exchange()
        sum_partial_gradients(parameters, self.mesh, self.plan.layout.sp, self.clock)
        exchange_tied(parameters, self.mesh, tied, self.clock)
        if self.mesh.tp.rank > 0:  # every tensor rank knows the loss; it counts once
            loss = torch.zeros_like(loss)
        totals = torch.stack((loss.double(), own_square_sum(gradients(parameters), self.mesh, tied)))
        all_reduce(totals, self.mesh.world, self.clock, "loss and gradient norm")
        mean_loss, norm = totals[0].item(), totals[1].sqrt().item()
        lr = learning_rate(self.training, number)
        busy = self.clock.busy_ns()
        with self.clock.action(Action.OPTIMIZER):
            clip(parameters, norm, self.training.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        spent = (self.clock.busy_ns() - busy) * 1e-9
        return StepOutcome(mean_loss, norm, lr, trained, time.perf_counter() - start, spent)


def _matrix_sizes(parts: Parts) -> dict[str, float]:
    """Elements of the matrices of each unit: their share of a weight-gradient pass."""
    sizes: dict[str, float] = {}
    for _, model in parts.models:
        for unit in model.units:
            sizes[unit] = 0.0
        for name, parameter in model.named_parameters():
            if split_dim(name) is not None and "embed_tokens" not in name:
                sizes[_unit_of(name)] = sizes.get(_unit_of(name), 0.0) + parameter.numel()
    return sizes


def _unit_of(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "lm_head" or parts[1] == "norm":
        return "head"
    if parts[1] == "embed_tokens":
        return "embed"
    return f"layers.{parts[2]}." + ("attn" if parts[3] in ("self_attn", "input_layernorm") else "ffn")
