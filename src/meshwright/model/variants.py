"""In what units of one kind differ inside a model: experts or a dense network, a window or none.

Whoever counts something by unit counts it once for each variant, not for each unit.
"""

from dataclasses import dataclass
from functools import lru_cache

from meshwright.model.architecture import Architecture
from meshwright.model.units import Unit, UnitKind, units_of


@dataclass(frozen=True, slots=True)
class Variant:
    """What a unit is, but for the layer it lies in. Units of equal variants have equal tensors, FLOPs and bytes."""

    kind: UnitKind
    experts: bool = False  # its feed-forward network is a mixture of experts
    window: int | None = None  # tokens that its attention looks back


def variant_of(arch: Architecture, unit: Unit) -> Variant:
    """The variant of one unit of a model."""
    if unit.layer is None:
        return Variant(unit.kind)
    experts = bool(arch.experts) and unit.kind != "attn" and unit.layer not in arch.dense_layers
    window = None if unit.kind == "ffn" or unit.layer in arch.global_layers else arch.sliding_window
    return Variant(unit.kind, experts, window)


@lru_cache(maxsize=64)
def variants_of(arch: Architecture) -> tuple[Variant, ...]:
    """The variant of each unit, in the order of `units_of`."""
    return tuple(variant_of(arch, unit) for unit in units_of(arch))


@lru_cache(maxsize=64)
def alike(arch: Architecture) -> tuple[int, ...]:
    """For each unit the index of the first unit of its variant, in the order of `units_of`."""
    first: dict[Variant, int] = {}
    return tuple(first.setdefault(variant, index) for index, variant in enumerate(variants_of(arch)))
