"""How much memory a layout roughly needs: enough to say that something was not necessary, or cannot be enough.

The exact figure by rank and kind is the predictor's; here stages count as equal, and experts as sharded like the rest
(too little rather than too much).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from meshwright.layout.degrees import Recompute
from meshwright.layout.proposal import Proposal
from meshwright.layout.thresholds import COMFORT
from meshwright.model.activations import loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import stage_parameters
from meshwright.model.states import StateBytes, state_bytes
from meshwright.model.units import units_of


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
    shard_group: int | None = None

    @property
    def shards(self) -> int:
        """Ranks that share one set of ZeRO shards."""
        return min(self.shard_group or self.dp * self.cp, self.dp * self.cp)


@lru_cache(maxsize=256)
def parameters(arch: Architecture, tp: int = 1, ep: int = 1) -> int:
    """Parameters of the whole model on one tensor rank, with its part of the experts."""
    return stage_parameters(arch, units_of(arch), tp, ep)


def recipe_of(p: Proposal) -> StateBytes:
    """Bytes a parameter: of a frozen one (LoRA) the weight only."""
    recipe = state_bytes(p.training)
    return replace(recipe, gradient=0, master=0, moments=0) if p.training.task == "lora" else recipe


def states(p: Proposal, of: Shares) -> float:
    """Bytes of weights, gradients and optimizer on the average rank."""
    return parameters(p.arch, of.tp, of.ep) / of.pp * recipe_of(p).sharded(of.zero, of.shards)


def least_states(p: Proposal, of: Shares) -> float:
    """The least that any software keeps of them on a device: fp32 weights may serve as their own master copies, and
    what is offloaded is not there."""
    exact, frozen = replace(p.training, precision="fp32"), p.training.task == "lora"
    least = min(states(p, of), states(replace(p, training=exact), of)) if not frozen else states(p, of)
    match p.wanted.offload:
        case "parameters":
            return 0.0
        case "optimizer":
            kept = replace(recipe_of(p), master=0, moments=0)
            return min(least, parameters(p.arch, of.tp, of.ep) / of.pp * kept.sharded(of.zero, of.shards))
        case _:
            return least


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
    whole = p.wanted.vocab_parallel is not False
    return alive + again + loss_bytes(arch, training, of.micro_batch, length, of.tp, whole, p.wanted.loss_chunk)


def need(p: Proposal, of: Shares) -> float:
    """Bytes of one rank: states, activations, and what the device reserves."""
    return states(p, of) + activations(p, of) + p.cluster.device.reserved_bytes.value


def comfortable(p: Proposal, of: Shares) -> bool:
    """Does it fit with room to spare?"""
    return need(p, of) <= COMFORT * p.cluster.memory_bytes
