"""One tensor that a rank allocates while it trains a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from meshwright.layout.degrees import Layout
from meshwright.planner.oom_request import block_bytes

DTYPE_BYTES = {"int64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "uint8": 1}


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """A tensor of a plan on one rank. `units` are kinds of unit ("attn", "ffn") or what else allocates it, `ranks` the
    pipeline ranks that do. `expected` is False for what only software outside the plan's assumptions allocates."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    units: tuple[str, ...]
    ranks: tuple[int, ...]
    why: str
    shrink: str  # what would make it smaller
    expected: bool = True

    @property
    def n_bytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def block(self) -> int:
        """Bytes that the allocator asks the driver for."""
        return block_bytes(self.n_bytes)

    @property
    def text(self) -> str:
        """`[2, 4096, 11008] bf16`."""
        return f"[{', '.join(map(str, self.shape))}] {self.dtype}"


def merged(tensors: Sequence[PlanTensor]) -> tuple[PlanTensor, ...]:
    """Tensors that differ only in where they are allocated become one, largest first."""
    found: dict[tuple[object, ...], PlanTensor] = {}
    for one in tensors:
        key = (one.name, one.shape, one.dtype)
        if one.n_bytes < 1:
            continue
        before = found.get(key)
        if before is None:
            found[key] = one
            continue
        units = tuple(dict.fromkeys((*before.units, *one.units)))
        ranks = tuple(sorted({*before.ranks, *one.ranks}))
        found[key] = PlanTensor(one.name, one.shape, one.dtype, units, ranks, before.why, before.shrink, one.expected)
    return tuple(sorted(found.values(), key=lambda one: -one.n_bytes))


def ranks_with(layout: Layout, units: Sequence[str]) -> tuple[int, ...]:
    """The pipeline ranks that hold one of the units."""
    wanted = set(units)
    return tuple(
        sorted({rank for stage, rank in zip(layout.stages, layout.placement, strict=True) if wanted & set(stage)})
    )
