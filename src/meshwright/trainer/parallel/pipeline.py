"""The pipeline: PyTorch's stages and schedule runtime under our orders of actions, every action timed.

One pipeline rank needs no pipeline: the same actions then run in a plain loop over the micro-batches.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from meshwright.files.plan import Plan
from meshwright.layout.schedules import Order, actions
from meshwright.timeline.columns import Action
from meshwright.trainer.clock import Clock, UnitMeter
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.parallel.mesh import Mesh
from meshwright.trainer.parallel.messages import FrugalStage, proofs
from meshwright.trainer.torch_versions import follow, pipeline_runtime, root_cause


class Pipe(Protocol):
    """Runs forwards and backwards of one step, leaving gradients in the parameters."""

    def run(self, tokens: Tensor, labels: Tensor, scale: float, positions: Tensor | None = None) -> Tensor:
        """Tokens and labels [samples of this replica, S]; the sum of `scale` times each micro-batch's summed loss.

        A scalar; zero on ranks without the head. `positions` [samples, S]: places in documents, see `StageModel`.
        """
        ...


class StageRunner:
    """Runs and times the actions of one stage."""

    def __init__(
        self,
        model: StageModel,
        stage: int,
        clock: Clock,
        meter: UnitMeter,
        compute: torch.dtype,
        after_backward: Callable[[], None],
    ) -> None:
        self.model, self.stage, self.clock, self.meter, self.compute = model, stage, clock, meter, compute
        self.after_backward = after_backward
        self.positions: Sequence[Tensor] = ()  # of each micro-batch of the step

    @contextmanager
    def forward(self, micro_batch: int) -> Iterator[None]:
        """Around a forward."""
        self.model.positions = self.positions[micro_batch] if self.positions else None
        with self.clock.action(Action.FORWARD, self.stage, micro_batch), self.autocast():
            yield

    @contextmanager
    def backward(self, action: Action, micro_batch: int) -> Iterator[None]:
        """Around a backward, whole or half."""
        with self.clock.action(action, self.stage, micro_batch), self.meter.backward(self.model.units, action):
            yield
        self.after_backward()

    def autocast(self) -> AbstractContextManager[Any]:
        """Matrix products in half precision when the precision asks for it."""
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, dtype=self.compute, enabled=self.compute != torch.float32)


class TimedStage(FrugalStage):
    """A pipeline stage whose actions are timed; waiting for messages happens outside them."""

    def __init__(self, runner: StageRunner, n_stages: int, shapes: tuple[Tensor, Tensor], mesh: Mesh) -> None:
        super().__init__(
            runner.model, runner.stage, n_stages, next(runner.model.parameters()).device, input_args=shapes[0],
            output_args=shapes[1], group=mesh.pp.handle,
        )  # fmt: skip
        self.runner = runner

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.runner.forward(fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        action = Action.BACKWARD if full_backward else Action.INPUT_BACKWARD
        with self.runner.backward(action, bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self.runner.backward(Action.WEIGHT_BACKWARD, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)


def _shapes(plan: Plan, model: StageModel, stage: int) -> tuple[Tensor, Tensor]:
    """What a stage takes and gives for one micro-batch, as tensors without storage."""
    layout, batch = plan.layout, plan.batch
    positions = batch.seq_len // layout.tp if layout.sp else batch.seq_len
    stream = (batch.micro_batch, positions, model.arch.hidden)
    hidden = torch.empty(stream, dtype=model.dtype, device="meta", requires_grad=True)
    tokens = torch.empty((batch.micro_batch, batch.seq_len), dtype=torch.int64, device="meta")
    loss = torch.empty((), device="meta", requires_grad=True)
    return tokens if stage == 0 else hidden, loss if model.has_head else hidden


class MicroBatchLoop:
    """All stages on one rank, joined into one: forward and backward of one micro-batch after the other."""

    def __init__(self, runner: StageRunner, micro_batches: int) -> None:
        self.runner, self.micro_batches = runner, micro_batches

    def run(self, tokens: Tensor, labels: Tensor, scale: float, positions: Tensor | None = None) -> Tensor:
        self.runner.positions = () if positions is None else positions.chunk(self.micro_batches)
        total = torch.zeros((), device=tokens.device)
        chunks = zip(tokens.chunk(self.micro_batches), labels.chunk(self.micro_batches), strict=True)
        for index, (inputs, targets) in enumerate(chunks):
            with self.runner.forward(index):
                loss = self.runner.model(inputs, targets) * scale
            with self.runner.backward(Action.BACKWARD, index):
                loss.backward()
            total += loss.detach()
        return total


class ScheduledPipe:
    """Several pipeline ranks under a schedule."""

    def __init__(self, plan: Plan, runners: Sequence[StageRunner], mesh: Mesh, clock: Clock) -> None:
        layout, self._clock, self._mesh = plan.layout, clock, mesh
        self._placement, self._scale = layout.placement, 1.0
        self._first = any(runner.stage == 0 for runner in runners)
        self._last = any(runner.model.has_head for runner in runners)
        self._bytes = _shapes(plan, runners[0].model, 1)[0].nbytes
        self._stages = [
            TimedStage(runner, len(layout.stages), _shapes(plan, runner.model, runner.stage), mesh)
            for runner in runners
        ]
        orders = actions(layout.schedule, layout.placement, plan.batch.micro_batches)
        for stage in self._stages:
            stage.proofs = proofs(orders)
        self._runtime = pipeline_runtime(
            self._stages, orders, plan.batch.micro_batches, self._receiving, lambda loss, _: loss * self._scale
        )

    def follow(self, orders: Sequence[Order], micro_batches: int) -> None:
        """Let the next steps do these actions, on so many micro-batches."""
        for stage in self._stages:
            stage.proofs = proofs(orders)
        follow(self._runtime, orders, micro_batches)

    def _receiving(self, forward: bool, stage: int, micro_batch: int) -> AbstractContextManager[None]:
        peer = self._mesh.pp.ranks[self._placement[stage - 1 if forward else stage + 1]]
        name, action = ("receive activation", Action.FORWARD) if forward else ("receive gradient", Action.BACKWARD)
        return self._clock.waiting(name, peer, self._bytes, action, stage, micro_batch)

    def run(self, tokens: Tensor, labels: Tensor, scale: float, positions: Tensor | None = None) -> Tensor:
        self._scale = scale
        for stage in self._stages:
            stage.runner.positions = () if positions is None else positions.chunk(self._runtime._n_microbatches)
        losses: list[Tensor] = []
        with root_cause():
            self._runtime.step(
                *((tokens,) if self._first else ()), target=labels if self._last else None, losses=losses,
                return_outputs=False, **({"labels": labels} if self._last else {}),
            )  # fmt: skip
            for stage in self._stages:
                stage.settle()
        return torch.stack(losses).detach().sum() if losses else torch.zeros((), device=tokens.device)


def build_pipe(
    plan: Plan, models: Sequence[tuple[int, StageModel]], mesh: Mesh, clock: Clock, meter: UnitMeter,
    after_backward: Callable[[], None],
) -> Pipe:  # fmt: skip
    """The pipe of this rank's (stage, model) pairs, in forward order; `after_backward` runs after each backward."""
    runners = [StageRunner(model, stage, clock, meter, model.dtype, after_backward) for stage, model in models]
    if plan.layout.pp == 1:
        return MicroBatchLoop(runners[0], plan.batch.micro_batches)
    return ScheduledPipe(plan, runners, mesh, clock)
