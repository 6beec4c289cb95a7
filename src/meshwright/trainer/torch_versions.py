"""Every call into PyTorch that is private or differs between versions, and the versions for which it was verified."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from meshwright.layout.schedules import Order
from meshwright.trainer.supported_torch import refusal

_COMPUTATION = {
    "F": _ComputationType.FORWARD, "B": _ComputationType.FULL_BACKWARD, "I": _ComputationType.BACKWARD_INPUT,
    "W": _ComputationType.BACKWARD_WEIGHT,
}  # fmt: skip

Receiving = Callable[[bool, int, int], Any]
"""Context around waiting for a message: (activation rather than gradient, stage, micro-batch)."""


def check_version() -> None:
    """Raises InputError, in one line, when this PyTorch is not one the trainer was verified with."""
    if refused := refusal(torch.__version__):
        raise refused


class _TimedWait:
    """A pending receive whose wait is wrapped."""

    def __init__(self, work: Any, around: Any) -> None:
        self._work, self._around = work, around

    def wait(self) -> None:
        with self._around:
            self._work.wait()


class _TimedReceives(dict[tuple[int, int], list[Any]]):
    """The runtime's table of pending receives: what is taken out of it to be waited for is wrapped."""

    def __init__(self, forward: bool, receiving: Receiving) -> None:
        super().__init__()
        self._forward, self._receiving = forward, receiving

    def pop(self, key: tuple[int, int]) -> list[Any]:  # type: ignore[override]
        return [_TimedWait(work, self._receiving(self._forward, *key)) for work in super().pop(key)]


def pipeline_runtime(
    stages: Sequence[PipelineStage], orders: Sequence[Order], micro_batches: int, receiving: Receiving,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Any:  # fmt: skip
    """PyTorch's schedule runtime with our orders of actions: one order a pipeline rank, compute actions only.

    Gradients are not scaled: the loss is already divided by what the whole step trains on.
    """
    logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.CRITICAL)
    runtime = _PipelineScheduleRuntime(  # type: ignore[no-untyped-call]
        list(stages), micro_batches, loss_fn=loss, scale_grads=False
    )
    actions: dict[int, list[_Action | None]] = {
        rank: [_Action(action.stage, _COMPUTATION[action.kind], action.micro_batch) for action in order]
        for rank, order in enumerate(orders)
    }
    runtime._prepare_schedule_with_comms(actions)
    runtime.fwd_recv_ops = _TimedReceives(True, receiving)
    runtime.bwd_recv_ops = _TimedReceives(False, receiving)
    return runtime


@contextmanager
def root_cause() -> Iterator[None]:
    """Raise the error that the pipeline runtime wrapped in tensor descriptions, instead of the wrapping."""
    try:
        yield
    except RuntimeError as error:
        inner: BaseException = error
        while isinstance(inner, RuntimeError) and inner.__cause__ is not None and "failed to run" in str(inner).lower():
            inner = inner.__cause__
        if inner is error:
            raise
        raise inner from None
