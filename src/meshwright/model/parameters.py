"""How many parameters a unit, a stage and a model have, counted from the tensors."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.shapes import Tensor, tensors_of
from meshwright.model.units import Unit, units_of


def tensor_parameters(tensor: Tensor, tp: int = 1, ep: int = 1, etp: int | None = None) -> int:
    """Elements of one tensor on the rank that holds most. Experts (`copies` > 1) are spread over `ep` ranks and cut
    by `etp` (None: as `tp`), everything else is cut by `tp`."""
    if tensor.copies == 1:
        return tensor.local_size(tp)
    held = -(-tensor.copies // ep)
    return tensor.local_size(tp if etp is None else etp) // tensor.copies * held


def unit_parameters(arch: Architecture, unit: Unit, tp: int = 1, ep: int = 1, etp: int | None = None) -> int:
    """Parameters of one unit on one tensor rank (the one that holds most). A tied output matrix counts in `head`:
    a stage that holds both ends shares it, see `stage_parameters`."""
    return sum(tensor_parameters(tensor, tp, ep, etp) for tensor in tensors_of(arch, unit))


def stage_parameters(
    arch: Architecture, units: Iterable[Unit], tp: int = 1, ep: int = 1, etp: int | None = None
) -> int:
    """Parameters that one rank of a stage holds: its units, a tied matrix once when embedding and head are together."""
    held = tuple(units)
    shares = any(unit.kind == "embed" for unit in held)
    return sum(
        tensor_parameters(tensor, tp, ep, etp)
        for unit in held
        for tensor in tensors_of(arch, unit)
        if not (tensor.tied and shares)
    )


def total_parameters(arch: Architecture) -> int:
    """Parameters of the whole model, a tied matrix once. Vocabulary padding is not included."""
    return _whole(arch, lambda tensor: tensor.size)


def active_parameters(arch: Architecture) -> int:
    """Parameters that one token passes through: of the experts only those that the router picks."""
    return _whole(arch, lambda tensor: round(tensor.size * tensor.active))


def _whole(arch: Architecture, count: Callable[[Tensor], int]) -> int:
    """The sum over all tensors; the units of one layer stand for those of every layer."""
    embed, *layer, head = units_of(replace(arch, layers=1))
    ends = sum(count(tensor) for unit in (embed, head) for tensor in tensors_of(arch, unit) if not tensor.tied)
    return ends + arch.layers * sum(count(tensor) for unit in layer for tensor in tensors_of(arch, unit))
