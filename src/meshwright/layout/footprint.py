"""How much memory a layout roughly needs: enough to say that something was not necessary, or cannot be enough.

The exact figure by rank and kind is the predictor's; here stages count as equal, and experts as sharded like the rest
(too little rather than too much).
"""

from dataclasses import dataclass
from functools import lru_cache

from meshwright.layout.degrees import Recompute
from meshwright.layout.proposal import Proposal
from meshwright.model.activations import loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import stage_parameters
from meshwright.model.states import state_bytes
from meshwright.model.units import units_of

COMFORT = 0.85  # share of a device's memory up to which "it fits" is said without a measurement


@dataclass(frozen=True, slots=True)
class Shares:
    """How a model is divided, complete."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    zero: int = 0
    recompute: Recompute = "none"
    micro_batch: int = 1
    micro_batches: int = 1
    sp: bool = False
    ep: int = 1


@lru_cache(maxsize=256)
def parameters(arch: Architecture, tp: int = 1, ep: int = 1) -> int:
    """Parameters of the whole model on one tensor rank, with its part of the experts."""
    return stage_parameters(arch, units_of(arch), tp, ep)


def states(p: Proposal, of: Shares) -> float:
    """Bytes of weights, gradients and optimizer on the average rank."""
    return parameters(p.arch, of.tp, of.ep) / of.pp * state_bytes(p.training).sharded(of.zero, of.dp * of.cp)


def activations(p: Proposal, of: Shares) -> float:
    """Bytes kept for backward on the first pipeline rank under 1F1B, logits and one recomputed layer included."""
    arch, training, length = p.arch, p.training, max(1, p.seq_len // of.cp)

    def kept(recompute: Recompute) -> float:
        return sum(
            unit_activation_bytes(arch, unit, training, of.micro_batch, length, recompute, of.tp, of.sp)
            for unit in units_of(arch)
        )

    alive = kept(of.recompute) / of.pp * min(of.micro_batches, of.pp)
    again = kept("none") / arch.layers if of.recompute != "none" else 0.0
    return alive + again + loss_bytes(arch, training, of.micro_batch, length, of.tp)


def need(p: Proposal, of: Shares) -> float:
    """Bytes of one rank: states, activations, and what the device reserves."""
    return states(p, of) + activations(p, of) + p.cluster.device.reserved_bytes.value


def comfortable(p: Proposal, of: Shares) -> bool:
    """Does it fit with room to spare?"""
    return need(p, of) <= COMFORT * p.cluster.memory_bytes
