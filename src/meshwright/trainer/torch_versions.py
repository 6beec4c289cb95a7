"""Every call into PyTorch that is private or differs between versions, and the versions for which it was verified."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed import P2POp, Work
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining._utils import _make_tensor_from_meta
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from meshwright.layout.schedules import Order
from meshwright.trainer.clock import Clock
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
    follow(runtime, orders, micro_batches)
    runtime.fwd_recv_ops = _TimedReceives(True, receiving)
    runtime.bwd_recv_ops = _TimedReceives(False, receiving)
    return runtime


def follow(runtime: Any, orders: Sequence[Order], micro_batches: int) -> None:
    """Let a runtime's next step do these actions on so many micro-batches."""
    actions: dict[int, list[_Action | None]] = {
        rank: [_Action(action.stage, _COMPUTATION[action.kind], action.micro_batch) for action in order]
        for rank, order in enumerate(orders)
    }
    runtime._n_microbatches = micro_batches
    runtime._stages_forward_initialized = runtime._stages_backward_initialized = False  # buffers are made a micro-batch
    runtime._prepare_schedule_with_comms(actions)


def start(operations: list[P2POp]) -> list[Work]:
    """Start sends or receives as the schedule runtime does."""
    return schedules._batch_p2p(operations)


def empty_like_meta(meta: Any, device: torch.device) -> torch.Tensor:
    """A tensor of the shape and type that a stage has agreed on with its neighbour."""
    return _make_tensor_from_meta(meta, device)


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


def time_collectives(module: Any, clock: Clock, ranks: Sequence[int]) -> None:
    """Let the clock see what an FSDP module sends on CPU, where it sends in the calling thread.

    On GPUs the collectives run in streams of their own and are left alone.
    """

    class Gather(DefaultAllGather):
        def __call__(self, output_tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            with clock.collective("dp gather", ranks, output_tensor.nbytes):
                return super().__call__(output_tensor, *args, **kwargs)

    class Scatter(DefaultReduceScatter):
        def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            with clock.collective("dp reduce-scatter", ranks, input_tensor.nbytes):
                return super().__call__(output_tensor, input_tensor, *args, **kwargs)

    if next(module.parameters()).device.type == "cpu":
        module.set_custom_all_gather(Gather())
        module.set_custom_reduce_scatter(Scatter())


def reduce_now(module: Any) -> None:
    """Reduce what an FSDP module has accumulated without exchanging it, and free its gathered parameters.

    As PyTorch's pipeline stages do at the end of a step.
    """
    module.set_is_last_backward(True)
    module.set_reshard_after_backward(True)
    module.set_requires_gradient_sync(True)
    state = fully_shard.state(module)  # type: ignore[attr-defined]
    for held in state._state_ctx.all_states:
        for group in held._fsdp_param_groups:
            group.post_backward()
    state._root_post_backward_final_callback()


def alias(x: torch.Tensor) -> torch.Tensor:
    """The same values without a history; below autograd an alias shares its version only when asked to."""
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return x.detach()
