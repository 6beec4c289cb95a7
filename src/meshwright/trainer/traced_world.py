"""A world whose other ranks do not exist, and tensors that have shapes but no memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore

_NORM = 1e6  # what every fp value is read as: a gradient norm that is clipped


class _Values(TorchFunctionMode):
    """Answers for tensors without values: 1 for whole numbers and truths, a large number for the rest."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.item:
            return _NORM if args[0].is_floating_point() else 1
        return func(*args, **(kwargs or {}))


@contextmanager
def fake_world(world: int, rank: int) -> Iterator[None]:
    """The default process group of one rank among `world`; messages are sent nowhere. Gone when the block is left.

    Raises RuntimeError when this process already has a default process group.
    """
    if dist.is_initialized():
        raise RuntimeError("a trace needs a process without a process group")
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def without_memory() -> Iterator[None]:
    """Every tensor made inside has a shape, a type and the CPU as its device, and neither memory nor values."""
    with FakeTensorMode(allow_non_fake_inputs=True), _Values():
        yield
