"""What one rank really holds: bytes of weights, gradients and optimizer state, the peak, and the process's size."""

import resource
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from meshwright.basics.quantities import KIB, bytes_text
from meshwright.files.run import RankMemory

NONE: Mapping[str, nn.Parameter] = {}


class PeakTensors(TorchDispatchMode):
    """The most bytes of tensors alive at once while the mode is active, `held` included from the start.

    Each storage counts once, from the operation that made it until it is freed, whatever views of it there are.
    Autograd on CPU runs in the calling thread, so backward and recompute are seen as well. Beyond `limit` bytes it
    raises MemoryError at the tensor that crosses it, as a device would that runs out of memory.
    """

    def __init__(self, held: Iterable[Tensor], limit: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._limit = limit
        self._alive: dict[int, tuple[weakref.ref[Any], int]] = {}  # storages and their bytes
        for tensor in held:
            self._add(tensor)

    def __enter__(self) -> Self:
        resize = torch.UntypedStorage.resize_

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            out = resize(storage, size)
            self._resized(storage)
            return out

        self._restore = lambda: setattr(torch.UntypedStorage, "resize_", resize)
        torch.UntypedStorage.resize_ = resized  # type: ignore[assignment, method-assign]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        self._restore()  # type: ignore[no-untyped-call]
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it does with its local tensors comes here by itself
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return out

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive and size:
            self._alive[key] = weakref.ref(storage, lambda _: self._freed(key)), size
            self._grown(size)

    def _grown(self, size: int) -> None:
        self.now += size
        self.peak = max(self.peak, self.now)
        if self._limit is not None and self.now > self._limit:
            raise MemoryError(
                f"out of memory: {bytes_text(size)} more make {bytes_text(self.now)} of tensors, "
                f"cluster.memory_gib allows a rank {bytes_text(self._limit)}"
            )

    def _freed(self, key: int) -> None:
        self.now -= self._alive.pop(key)[1]

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP frees what it gathered by resizing its storage to nothing, and makes it again so."""
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            alive, before = self._alive[key]
            self._alive[key] = alive, size
            self._grown(size - before)
        elif size:
            self._alive[key] = weakref.ref(storage, lambda _: self._freed(key)), size
            self._grown(size)


def held_tensors(
    parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer,
    owned: Mapping[str, nn.Parameter] = NONE,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Weights, gradients and optimizer states of this rank, which updates `owned` where that is not all it holds."""
    return (*parameters.values(), *_gradients(parameters, owned), *_states(optimizer))


def rank_memory(
    rank: int, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, peak: int | None,
    owned: Mapping[str, nn.Parameter] = NONE,
) -> RankMemory:  # fmt: skip
    """The tensors of this rank's own shards, counted after a step; `peak_rss` is the whole process's."""
    return RankMemory(
        rank=rank,
        weights=_bytes(parameters.values()),
        gradients=_bytes(_gradients(parameters, owned)),
        optimizer=_bytes(_states(optimizer)),
        peak_rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        peak_tensors=peak,
    )


def _gradients(parameters: Mapping[str, nn.Parameter], owned: Mapping[str, nn.Parameter]) -> list[Tensor]:
    """Of whole parameters, and of the rows that a rank updates: views of those, or all that is kept."""
    return [p.grad for p in (*parameters.values(), *owned.values()) if p.grad is not None]


def _states(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages of tensors, each once whatever views of it there are."""
    sizes = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in tensors}
    return sum(sizes.values())
