"""What follows from the fixed parts of a proposal: the degrees that are still possible."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from meshwright.layout.batch import divisors, micro_batches_for
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.schedules import V_SHAPED, default_placement
from meshwright.model.architecture import Architecture
from meshwright.model.units import units_of

DEGREES = ("dp", "tp", "pp", "cp")


@lru_cache(maxsize=256)
def unit_names(arch: Architecture) -> tuple[str, ...]:
    """Names of all units in the order of the forward pass."""
    return tuple(unit.name for unit in units_of(arch))


def asked_degrees(proposal: Proposal) -> dict[str, int]:
    """The fixed ones among dp, tp, pp and cp."""
    wanted = proposal.wanted
    found = {name: getattr(wanted, name) for name in DEGREES}
    return {name: degree for name, degree in found.items() if degree is not None}


def with_degrees(wanted: Wanted, degrees: Mapping[str, int]) -> Wanted:
    """The same with dp, tp, pp and cp fixed."""
    return replace(wanted, dp=degrees["dp"], tp=degrees["tp"], pp=degrees["pp"], cp=degrees["cp"])


def possible_dp(proposal: Proposal) -> tuple[int, ...]:
    """Every data degree that the fixed degrees leave; empty when they do not divide the number of devices."""
    asked = asked_degrees(proposal)
    if "dp" in asked:
        return (asked["dp"],)
    rest, over = divmod(proposal.cluster.gpus, prod(asked.values()))
    if over or not rest:
        return ()
    return (rest,) if len(asked) == len(DEGREES) - 1 else divisors(rest)


def settled(proposal: Proposal) -> Proposal:
    """With what follows by itself: the last free degree, and degrees of 1 when the fixed ones fill the cluster."""
    asked = asked_degrees(proposal)
    free = [name for name in DEGREES if name not in asked]
    rest, over = divmod(proposal.cluster.gpus, prod(asked.values()))
    if over or not free or (rest > 1 and len(free) > 1):
        return proposal
    return replace(proposal, wanted=with_degrees(proposal.wanted, {**asked, **dict.fromkeys(free, rest)}))


def micro_batches_of(proposal: Proposal) -> int | None:
    """Micro-batches a step: as written, or as they follow from the batch equation; None while open."""
    wanted = proposal.wanted
    if wanted.micro_batches is not None:
        return wanted.micro_batches
    replicas = possible_dp(proposal)
    if wanted.micro_batch is None or len(replicas) != 1:
        return None
    return micro_batches_for(proposal.global_batch, wanted.micro_batch, replicas[0])


def chunks_of(proposal: Proposal) -> int:
    """Model chunks a pipeline rank: as written, or what schedule and number of stages ask for."""
    wanted = proposal.wanted
    if wanted.vpp is not None:
        return wanted.vpp
    if wanted.stages is not None and wanted.pp:
        return max(1, len(wanted.stages) // wanted.pp)
    return 2 if wanted.schedule in V_SHAPED else 1


def own_placement(proposal: Proposal) -> bool:
    """Did the user place stages in a way of her own, which no published schedule is made for?"""
    wanted = proposal.wanted
    if wanted.placement is None or wanted.pp is None:
        return False
    chunks, over = divmod(len(wanted.placement), wanted.pp)
    if over or not chunks:
        return True
    standard = tuple(range(wanted.pp)) * chunks
    if wanted.schedule in V_SHAPED and chunks == 2:
        standard = default_placement(wanted.schedule, wanted.pp, 2)
    return wanted.placement != standard
