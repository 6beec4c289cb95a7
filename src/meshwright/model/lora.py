"""Parameters of low-rank adapters (Hu et al. 2021, LoRA, arXiv:2106.09685, section 4.1).

A matrix [out, in] gets two factors, rank · in and rank · out. q, k and v, and gate and up, are matrices of their own
here, as in the modules of most families. Routers, gates of shared experts, the embedding and the head stay frozen.
"""

from functools import lru_cache

from meshwright.model.architecture import Architecture
from meshwright.model.parameters import total_parameters
from meshwright.model.shapes import Tensor, tensors_of
from meshwright.model.training import Training
from meshwright.model.units import Unit, units_of

_ATTENTION = frozenset({"q", "k", "v", "o", "q_down", "q_up", "kv_down", "kv_up"})
_FEED_FORWARD = frozenset({"gate", "up", "down"})


def is_target(tensor: Tensor, training: Training) -> bool:
    """True for a matrix that gets an adapter: `lora_targets` are those of attention, or of feed-forward as well."""
    name = tensor.name.removesuffix(".weight").removeprefix("shared.").removeprefix("experts.")
    return tensor.matmul and (name in _ATTENTION or (training.lora_targets == "all" and name in _FEED_FORWARD))


def adapter_parameters(
    arch: Architecture, unit: Unit, training: Training, tp: int = 1, ep: int = 1, etp: int | None = None
) -> int:
    """Parameters of the adapters of one unit on the tensor rank that holds most.

    The factor on the side that a tensor group cuts is cut with the matrix, the other one is on every rank: rank · out
    of a column-split matrix, rank · in of a row-split one. Experts have one adapter each: a rank holds those of its
    experts, cut by `etp` (None: as `tp`).
    """
    return sum(
        _adapter(tensor, training.lora_rank, tp, ep, etp)
        for tensor in tensors_of(arch, unit)
        if is_target(tensor, training)
    )


def _adapter(tensor: Tensor, rank: int, tp: int, ep: int, etp: int | None) -> int:
    expert = tensor.copies > 1
    cut = tp if not expert or etp is None else etp
    out, into = tensor.shape
    held = tensor.local_size(cut) // tensor.copies
    if tensor.split == "row":
        into = held // out
    else:
        out = held // into
    return rank * (out + into) * (-(-tensor.copies // ep) if expert else 1)


@lru_cache(maxsize=64)
def trainable_share(arch: Architecture, training: Training) -> float:
    """Share of the model's parameters that receive gradients, adapters counted beside the frozen ones' number."""
    return total_adapter_parameters(arch, training) / total_parameters(arch) if training.task == "lora" else 1.0


def total_adapter_parameters(arch: Architecture, training: Training) -> int:
    """Parameters of all adapters of the model."""
    return sum(adapter_parameters(arch, unit, training) for unit in units_of(arch))
