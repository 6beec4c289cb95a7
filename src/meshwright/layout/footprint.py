"""How much memory a layout roughly needs: enough to say that something was not necessary, or cannot be enough.

The exact figure by rank and kind is the predictor's; here stages count as equal.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from meshwright.layout.degrees import Recompute
from meshwright.layout.proposal import Proposal
from meshwright.layout.thresholds import COMFORT
from meshwright.model.activations import loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import tensor_parameters
from meshwright.model.shapes import Tensor, variant_tensors
from meshwright.model.states import StateBytes, state_bytes
from meshwright.model.units import units_of
from meshwright.model.variants import alike, variants_of


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
    etp: int | None = None  # None: as tp
    shard_group: int | None = None

    @property
    def shards(self) -> int:
        """Ranks that share one set of ZeRO shards."""
        return min(self.shard_group or self.dp * self.cp, self.dp * self.cp)

    @property
    def expert_shards(self) -> int:
        """The same of experts, which are held by as many ranks as remain beside `ep` and `etp`."""
        copies = self.dp * self.cp * self.tp // (self.ep * (self.etp or self.tp))
        return max(1, min(self.shards, copies))


@lru_cache(maxsize=256)
def _apart(arch: Architecture, tp: int, ep: int, etp: int | None) -> tuple[int, int]:
    """Parameters of the whole model on one tensor rank: without experts, and its part of the experts."""
    dense = experts = 0
    for variant, number in Counter(variants_of(arch)).items():
        tensors = [tensor for tensor in variant_tensors(arch, variant) if not tensor.tied]
        of_dense, of_experts = _split(tensors, tp, ep, etp)
        dense, experts = dense + number * of_dense, experts + number * of_experts
    return dense, experts


def _split(tensors: Iterable[Tensor], tp: int, ep: int, etp: int | None) -> tuple[int, int]:
    """Parameters of tensors on one tensor rank: without experts, and its part of the experts."""
    held = [(tensor.copies > 1, tensor_parameters(tensor, tp, ep, etp)) for tensor in tensors]
    return sum(size for expert, size in held if not expert), sum(size for expert, size in held if expert)


def parameters(arch: Architecture, tp: int = 1, ep: int = 1, etp: int | None = None) -> int:
    """Parameters of the whole model on one tensor rank, with its part of the experts."""
    return sum(_apart(arch, tp, ep, etp))


def recipe_of(p: Proposal) -> StateBytes:
    """Bytes a parameter: of a frozen one (LoRA) the weight only."""
    recipe = state_bytes(p.training)
    return replace(recipe, gradient=0, master=0, moments=0) if p.training.task == "lora" else recipe


def states(p: Proposal, of: Shares) -> float:
    """Bytes of weights, gradients and optimizer on the average rank."""
    return _divided(p.arch, recipe_of(p), of)


def _divided(arch: Architecture, recipe: StateBytes, of: Shares) -> float:
    return _held(_apart(arch, of.tp, of.ep, of.etp), recipe, of) / of.pp


def _held(apart: tuple[int, int], recipe: StateBytes, of: Shares) -> float:
    dense, experts = apart
    return dense * recipe.sharded(of.zero, of.shards) + experts * recipe.sharded(of.zero, of.expert_shards)


def unit_states(p: Proposal, of: Shares) -> dict[str, float]:
    """Bytes of weights, gradients and optimizer of each unit on one rank that holds it."""
    arch, recipe = p.arch, recipe_of(p)
    each = {
        variant: _held(_split(variant_tensors(arch, variant), of.tp, of.ep, of.etp), recipe, of)
        for variant in set(variants_of(arch))
    }
    return {unit.name: each[variant] for unit, variant in zip(units_of(arch), variants_of(arch), strict=True)}


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
            return min(least, _divided(p.arch, kept, of))
        case _:
            return least


def activations(p: Proposal, of: Shares) -> float:
    """Bytes kept for backward on the first pipeline rank under 1F1B, logits and one recomputed layer included."""
    arch, training, length = p.arch, p.training, max(1, p.seq_len // of.cp)

    def kept(recompute: Recompute) -> float:
        return sum(
            number * unit_activation_bytes(
                arch, units_of(arch)[first], training, of.micro_batch, length, recompute, of.tp, of.sp, of.etp,
                ep=of.ep,
            )
            for first, number in Counter(alike(arch)).items()
        )  # fmt: skip

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
