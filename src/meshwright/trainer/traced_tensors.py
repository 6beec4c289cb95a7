"""Watching the tensors and messages of a traced step: bytes alive, their peaks by action, collectives by group."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves

from meshwright.timeline.columns import Action
from meshwright.trainer.clock import Clock
from meshwright.trainer.memory import PeakTensors

_KINDS = {
    "allreduce_": "all-reduce", "allgather_": "all-gather", "_allgather_base_": "all-gather",
    "reduce_scatter_": "reduce-scatter", "_reduce_scatter_base_": "reduce-scatter", "broadcast_": "broadcast",
    "alltoall_": "all-to-all", "alltoall_base_": "all-to-all", "send": "send", "recv_": "receive",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages seen, by (kind, name of the group), and their bytes: of the largest tensor that each names."""

    count: Counter[tuple[str, str]]
    size: Counter[tuple[str, str]]


class TracedTensors(PeakTensors):  # type: ignore[no-untyped-call]
    """Bytes alive; of them those of tensors whose last dimension is `width` (the rank's share of the vocabulary); and
    the messages sent. `groups` names process groups."""

    def __init__(self, held: Iterable[Tensor], width: int | None, groups: Mapping[str, str]) -> None:
        self._groups, self._width = groups, width
        self._wide_sizes: dict[int, int] = {}
        self.wide = self.wide_peak = self.lap_peak = 0
        self.messages = Messages(Counter(), Counter())
        super().__init__(held)
        self.wide = self.wide_peak = 0  # nothing that is held is scores
        self._wide_sizes.clear()

    def lap(self) -> None:
        """Begin a new maximum, `lap_peak`, from what is alive now."""
        self.lap_peak = self.now

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name  # type: ignore[attr-defined]
        if name.startswith("c10d::"):
            self._message(name.removeprefix("c10d::"), args)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _message(self, name: str, args: tuple[Any, ...]) -> None:
        if name not in _KINDS:
            return
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        if name in ("send", "recv_") and tensors[0].dtype == torch.int32:
            return  # how PyTorch's pipeline agrees on shapes before its first step
        sizes = [leaf.nbytes for leaf in tensors]
        key = _KINDS[name], self._groups.get(_group_of(args), "world")
        self.messages.count[key] += 1
        self.messages.size[key] += max(sizes, default=0)

    def _add(self, tensor: Tensor) -> None:
        before = self.now
        super()._add(tensor)
        size = self.now - before
        if size and self._width is not None and tensor.ndim and tensor.shape[-1] == self._width:
            self._wide_sizes[tensor.untyped_storage()._cdata] = size
            self.wide += size
            self.wide_peak = max(self.wide_peak, self.wide)

    def _grown(self, size: int) -> None:
        super()._grown(size)
        self.lap_peak = max(self.lap_peak, self.now)

    def _freed(self, key: int) -> None:
        super()._freed(key)
        self.wide -= self._wide_sizes.pop(key, 0)


def _group_of(args: tuple[Any, ...]) -> str:
    """The name of the process group among an operator's arguments."""
    for argument in args:
        if isinstance(argument, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(argument).group_name
            except (RuntimeError, ValueError):
                continue  # the reduction, which is an object as well
    return ""


@dataclass(frozen=True, slots=True)
class Moment:
    """One stage action, or the optimizer's step: bytes alive before and after, and the most during it."""

    action: Action
    stage: int
    micro_batch: int
    before: int
    after: int
    peak: int
    wide: int  # of `after`: tensors as wide as the vocabulary


class WatchingClock(Clock):
    """A clock that notes the bytes of `tensors` around every action."""

    tensors: TracedTensors | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments: list[Moment] = []

    @contextmanager
    def action(self, action: Action, stage: int = -1, micro_batch: int = -1) -> Iterator[None]:
        tensors = self.tensors
        if tensors is None:
            with super().action(action, stage, micro_batch):
                yield
            return
        tensors.lap()
        before = tensors.now
        with super().action(action, stage, micro_batch):
            yield
        self.moments.append(Moment(action, stage, micro_batch, before, tensors.now, tensors.lap_peak, tensors.wide))
