"""Selective recompute: results of matrix products and of the attention are kept, the cheap rest runs again.

PyTorch's own selective contexts allow one backward a forward; the halves of a split backward need two. What is kept is
told by its place in the order of operations, which a unit repeats exactly.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from meshwright.trainer.torch_versions import alias

_aten = torch.ops.aten
_PRODUCTS = frozenset(
    {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}
)  # of matrices: what linear layers and attention written out become
_ATTENTION = frozenset(
    {
        _aten._scaled_dot_product_flash_attention_for_cpu.default, _aten._scaled_dot_product_flash_attention.default,
        _aten._scaled_dot_product_efficient_attention.default, _aten._scaled_dot_product_cudnn_attention.default,
    }
)  # fmt: skip
KEPT = _PRODUCTS | _ATTENTION

Kept = list[tuple[Any, Any, int]]
"""The operation, its result and the result's version, for everything kept in order."""


class _Keep(TorchDispatchMode):
    """Around a unit's forward: keeps results, but not that of a product with nothing to keep after it, which adds to
    the residual stream and is needed by no backward."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = kept

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in KEPT:
            self._kept.append((func, tree_map_only(Tensor, alias, out), _version(out)))
        return out

    def __exit__(self, *raised: Any) -> None:
        if self._kept and self._kept[-1][0] in _PRODUCTS:
            self._kept.pop()
        super().__exit__(*raised)  # type: ignore[no-untyped-call]


class _Reuse(TorchDispatchMode):
    """Around a unit's recompute: takes what was kept instead of computing it."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept, self._next = kept, 0

    def __enter__(self) -> Any:
        self._next = 0  # a unit may run again more than once
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in KEPT or self._next >= len(self._kept):
            return func(*args, **(kwargs or {}))
        made_by, out, version = self._kept[self._next]
        self._next += 1
        if made_by is not func or _version(out) != version:
            raise RuntimeError(f"recompute met {func} where {made_by} was, or what it made was changed since")
        return tree_map_only(Tensor, alias, out)


def _version(out: Any) -> int:
    return sum(x._version for x in (out if isinstance(out, tuple) else (out,)) if isinstance(x, Tensor))


def keep_products() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of one forward and of its recomputes, as `torch.utils.checkpoint` takes them."""
    kept: Kept = []
    return _Keep(kept), _Reuse(kept)
