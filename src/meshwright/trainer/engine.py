"""The engine: one rank's training, a step at a time."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from meshwright.files.plan import Plan
from meshwright.timeline.columns import Action
from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.loss_scale import loss_scale
from meshwright.trainer.parallel.groups import all_reduce
from meshwright.trainer.parallel.mesh import Mesh, build_mesh
from meshwright.trainer.parallel.parallelize import Parts, parallelize
from meshwright.trainer.parallel.units import unit_of
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
from meshwright.trainer.weights import Weights


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did; equal on every rank but for `seconds` (wall of this rank) and `optimizer_s`."""

    loss: float  # mean over the step's trained tokens, before the update
    grad_norm: float  # global, before clipping
    lr: float
    tokens: int
    seconds: float
    optimizer_s: float  # device seconds of this rank
    loss_scale: float = 1.0  # at which the gradients were computed
    skipped: bool = False  # no update, as a gradient overflowed


class Engine:
    """One rank: its part of the model, its optimizer and its clock. Collective to build and to step.

    `mesh` and `clock` are made here unless they are given (a trace gives a mesh of ranks that do not exist). The
    first weights are random unless `weights` are given.
    """

    def __init__(
        self, plan: Plan, device: torch.device, mesh: Mesh | None = None, clock: Clock | None = None,
        weights: Weights | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.device = plan, device
        self.mesh: Mesh = mesh or build_mesh(plan.layout, device.type)
        if clock is None:
            wait = torch.cuda.synchronize if device.type == "cuda" else None
            clock = Clock(SpanRecorder(self.mesh.rank), wait)
        self.clock, self.recorder = clock, clock.recorder
        self.meter = UnitMeter(self.clock)
        self.parts: Parts = parallelize(plan, self.mesh, self.clock, self.meter, device, weights)
        self.training = plan.setup.proposal.training
        self.optimizer = make_optimizer(self.parts.owned, self.training)
        self.scale = loss_scale(self.training)

    def step(self, number: int, samples: NDArray[np.int64], positions: NDArray[np.int64] | None = None) -> StepOutcome:
        """Train on the global batch `samples` [global_batch, seq_len + 1]; tokens below 0 are not trained on.

        Every rank is given the same samples and takes its replica's rows. `positions`, of the same shape, are places
        in documents: attention stays inside a document, and no token is trained to follow another document's.
        """
        start = time.perf_counter()
        self.recorder.step = number + 1  # people count from 1
        replicas, owned, tied = self.parts.replicas, self.parts.owned, self.plan.setup.proposal.arch.tied
        targets = samples[:, 1:] if positions is None else np.where(positions[:, 1:] > 0, samples[:, 1:], -1)
        trained = int((targets >= 0).sum())
        rows = len(samples) // self.mesh.dp.size
        own = slice(self.mesh.dp.rank * rows, (self.mesh.dp.rank + 1) * rows)
        inputs = torch.from_numpy(samples[own, :-1]).to(self.device).clamp(min=0)
        labels = torch.from_numpy(targets[own]).to(self.device)
        places = None if positions is None else torch.from_numpy(positions[own, :-1]).to(self.device)
        scale = self.scale.value
        replicas.start()
        loss = self.parts.pipe.run(inputs, labels, scale / max(1, trained), places)
        replicas.exchange()
        sum_partial_gradients(owned, self.mesh, self.plan.layout.sp, self.clock)
        exchange_tied(owned, self.mesh, tied, self.clock)
        if self.mesh.tp.rank > 0:  # every tensor rank knows the loss; it counts once
            loss = torch.zeros_like(loss)
        totals = torch.stack((loss.double(), own_square_sum(gradients(owned), self.mesh, tied)))
        all_reduce(totals, self.mesh.world, self.clock, "loss and gradient norm")
        mean_loss, norm = totals[0].item() / scale, totals[1].sqrt().item() / scale
        lr = learning_rate(self.training, number - self.scale.skipped)
        if self.scale.active and not math.isfinite(norm):
            self.scale.overflowed(number + 1, [] if self.scale.in_a_row else self._overflows())
            spent = time.perf_counter() - start
            return StepOutcome(mean_loss, norm, lr, trained, spent, 0.0, scale, skipped=True)
        busy = self.clock.busy_ns()
        with self.clock.action(Action.OPTIMIZER):
            clip(owned, norm, self.training.clip, scale)
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
        replicas.gather()
        self.scale.passed()
        spent = (self.clock.busy_ns() - busy) * 1e-9
        return StepOutcome(mean_loss, norm, lr, trained, time.perf_counter() - start, spent, scale)

    def _overflows(self) -> list[str]:
        """Units with a gradient that is not finite, on any rank, in the order of the model. Collective."""
        arch, held = self.plan.setup.proposal.arch, gradients(self.parts.owned)
        mine = {unit_of(name, arch) for name, grad in held.items() if not grad.isfinite().all()}
        told = [mine]
        if self.mesh.world.size > 1:
            told = [set()] * self.mesh.world.size
            dist.all_gather_object(told, mine)
        order = [unit for stage in self.plan.layout.stages for unit in stage]
        return sorted(set().union(*told), key=order.index)
