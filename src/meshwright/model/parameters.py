"""How many parameters a unit, a stage and a model have, counted from the tensors."""

from collections import Counter
from collections.abc import Callable, Iterable

from meshwright.model.architecture import Architecture
from meshwright.model.shapes import Tensor, tensors_of, variant_tensors
from meshwright.model.units import Unit
from meshwright.model.variants import variants_of


def tensor_parameters(tensor: Tensor, tp: int = 1, ep: int = 1, etp: int | None = None, vocab_multiple: int = 1) -> int:
    """Elements of one tensor on the rank that holds most. Experts (`copies` > 1) are spread over `ep` ranks and cut
    by `etp` (None: as `tp`), everything else is cut by `tp`; vocabulary rows are padded (`Tensor.local_size`)."""
    if tensor.copies == 1:
        return tensor.local_size(tp, vocab_multiple)
    held = -(-tensor.copies // ep)
    return tensor.local_size(tp if etp is None else etp) // tensor.copies * held


def unit_parameters(
    arch: Architecture, unit: Unit, tp: int = 1, ep: int = 1, etp: int | None = None, vocab_multiple: int = 1
) -> int:
    """Parameters of one unit on one tensor rank (the one that holds most). A tied output matrix counts in `head`:
    a stage that holds both ends shares it, see `stage_parameters`."""
    return sum(tensor_parameters(tensor, tp, ep, etp, vocab_multiple) for tensor in tensors_of(arch, unit))


def stage_parameters(
    arch: Architecture,
    units: Iterable[Unit],
    tp: int = 1,
    ep: int = 1,
    etp: int | None = None,
    vocab_multiple: int = 1,
) -> int:
    """Parameters that one rank of a stage holds: its units, a tied matrix once when embedding and head are together."""
    held = tuple(units)
    shares = any(unit.kind == "embed" for unit in held)
    return sum(
        tensor_parameters(tensor, tp, ep, etp, vocab_multiple)
        for unit in held
        for tensor in tensors_of(arch, unit)
        if not (tensor.tied and shares)
    )


def total_parameters(arch: Architecture, vocab_multiple: int = 1, tp: int = 1) -> int:
    """Parameters of the whole model, a tied matrix once. Vocabulary rows are padded to a multiple of `vocab_multiple`
    times `tp`; as they stand (1), none are."""
    return _whole(
        arch, lambda tensor: tensor.local_size(tp, vocab_multiple) * tp if tensor.split == "vocab" else tensor.size
    )


def active_parameters(arch: Architecture) -> int:
    """Parameters that one token passes through: of the experts only those that the router picks."""
    return _whole(arch, lambda tensor: round(tensor.size * tensor.active))


def _whole(arch: Architecture, count: Callable[[Tensor], int]) -> int:
    """The sum over all tensors, each variant of unit counted once."""
    return sum(
        number * count(tensor)
        for variant, number in Counter(variants_of(arch)).items()
        for tensor in variant_tensors(arch, variant)
        if not tensor.tied
    )
