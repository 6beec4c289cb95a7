"""Judging a partition: memory that cannot be enough, stages that do too much, ends that are too heavy."""

from functools import lru_cache

from meshwright.basics.quantities import count_text, gib
from meshwright.layout.footprint import parameters, states
from meshwright.layout.given import unit_names
from meshwright.layout.partition import balance
from meshwright.layout.problem import Explanation, Rule, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules_waste import shares_of
from meshwright.layout.schedules import V_SHAPED, default_placement
from meshwright.model.architecture import Architecture
from meshwright.model.flops import unit_forward_flops
from meshwright.model.parameters import unit_parameters
from meshwright.model.states import state_bytes
from meshwright.model.units import compact, units_of

UNEVEN = 1.05  # work of the busiest rank over what the best partition would give it
HEAVY = 1.2  # parameters of a rank over the mean
CROWDED = 0.6  # share of the memory from which a heavy rank matters


@lru_cache(maxsize=64)
def work_of(arch: Architecture, seq_len: int) -> dict[str, float]:
    """Forward FLOPs of one token in each unit."""
    return {unit.name: unit_forward_flops(arch, unit, 1, seq_len) for unit in units_of(arch)}


@lru_cache(maxsize=64)
def _sizes(arch: Architecture, tp: int) -> dict[str, int]:
    return {unit.name: unit_parameters(arch, unit, tp) for unit in units_of(arch)}


def _placed(p: Proposal) -> tuple[int, ...] | None:
    """The rank of each listed stage; None without stages, or when another rule has something to say about them."""
    w = p.wanted
    if w.stages is None or w.pp is None or w.pp == 1:
        return None
    if tuple(unit for stage in w.stages for unit in stage) != unit_names(p.arch):
        return None
    if w.placement is None:
        chunks, over = divmod(len(w.stages), w.pp)
        if over or not chunks or (w.schedule in V_SHAPED and chunks != 2):
            return None
        return default_placement(w.schedule or "1f1b", w.pp, chunks)
    return w.placement if len(w.placement) == len(w.stages) and set(w.placement) == set(range(w.pp)) else None


def _loads(p: Proposal, placement: tuple[int, ...], each: dict[str, float] | dict[str, int]) -> list[float]:
    """The sum over each rank's units."""
    loads = [0.0] * (max(placement) + 1)
    for stage, rank in zip(p.wanted.stages or (), placement, strict=True):
        loads[rank] += sum(each[unit] for unit in stage)
    return loads


def _memory_holds(p: Proposal) -> bool:
    of = shares_of(p)
    return of is None or states(p, of) <= p.cluster.memory_bytes


def _explain_memory(p: Proposal) -> Explanation:
    of = shares_of(p)
    assert of is not None
    held = parameters(p.arch, of.tp, of.ep) / of.pp
    recipe = state_bytes(p.training)
    replicas = of.dp * of.cp
    helps = [
        f"zero = {zero}: {gib(held * recipe.sharded(zero, replicas))}"
        for zero in range(of.zero + 1, 4)
        if held * recipe.sharded(zero, replicas) < p.cluster.memory_bytes
    ]
    devices = -(-int(parameters(p.arch) * recipe.total) // p.cluster.memory_bytes)
    return Explanation(
        f"{count_text(held)} parameters a rank · {recipe.text()}"
        f"{f', ZeRO-{of.zero} over {replicas}' if of.zero else ''} = {gib(states(p, of))} of states alone, and a "
        f"device has {gib(p.cluster.memory_bytes)}",
        tuple(helps) or (f"spread the states over more than {devices} devices (tp · pp, or zero = 3)",),
    )


def _best(p: Proposal, placement: tuple[int, ...]) -> tuple[tuple[str, ...], ...] | None:
    """The partition with the least work on the busiest rank; only where each rank holds one stage."""
    if len(placement) != max(placement) + 1:
        return None
    return balance(unit_names(p.arch), work_of(p.arch, p.seq_len), len(placement))


def _even_enough(p: Proposal) -> bool:
    placement = _placed(p)
    if placement is None:
        return True
    work = work_of(p.arch, p.seq_len)
    best = _best(p, placement)
    if best is None:
        return True
    return max(_loads(p, placement, work)) <= UNEVEN * max(sum(work[unit] for unit in stage) for stage in best)


def _explain_uneven(p: Proposal) -> Explanation:
    placement = _placed(p)
    assert placement is not None
    work, best, stages = work_of(p.arch, p.seq_len), _best(p, placement), p.wanted.stages or ()
    assert best is not None
    loads = _loads(p, placement, work)
    busiest = loads.index(max(loads))
    stage = placement.index(busiest)
    mean, idlest = sum(loads) / len(loads), min(loads)
    reached = max(sum(work[unit] for unit in part) for part in best)
    shown = str([list(compact(part)) for part in best]).replace("'", '"')
    return Explanation(
        f"stage {stage} ({', '.join(compact(stages[stage]))}) does {max(loads) / mean:.2f}× the mean work (FLOPs); "
        f"even without a bubble the idlest rank waits {1 - idlest / max(loads):.0%} of the time. The best partition "
        f"of the same units gives {reached / mean:.2f}×",
        (f"{spelled(p, 'layout.stages')} = {shown}",),
    )


def _ends_hold(p: Proposal) -> bool:
    placement, of = _placed(p), shares_of(p)
    if placement is None or of is None:
        return True
    loads = _loads(p, placement, _sizes(p.arch, of.tp))
    heaviest = max(loads)
    if heaviest <= HEAVY * sum(loads) / len(loads):
        return True
    return heaviest * state_bytes(p.training).sharded(of.zero, of.dp * of.cp) < CROWDED * p.cluster.memory_bytes


def _explain_ends(p: Proposal) -> Explanation:
    placement, of = _placed(p), shares_of(p)
    assert placement is not None
    assert of is not None
    sizes = _sizes(p.arch, of.tp)
    loads = _loads(p, placement, sizes)
    rank = loads.index(max(loads))
    held = [unit for stage, on in zip(p.wanted.stages or (), placement, strict=True) if on == rank for unit in stage]
    ends = sum(sizes[unit] for unit in held if unit in ("embed", "head"))
    because = f", {count_text(ends)} of them in embedding and output" if ends else ""
    bytes_each = state_bytes(p.training).sharded(of.zero, of.dp * of.cp)
    lighter = balance(unit_names(p.arch), {name: float(size) for name, size in sizes.items()}, max(placement) + 1)
    shown = str([list(compact(part)) for part in lighter]).replace("'", '"')
    return Explanation(
        f"pipeline rank {rank} is the heaviest: {count_text(loads[rank])} parameters{because}, "
        f"{loads[rank] * len(loads) / sum(loads):.2f}× the mean, {gib(loads[rank] * bytes_each)} of states",
        (f"even in parameters: {shown}",),
    )


FIT_RULES: tuple[Rule, ...] = (
    Rule("states-exceed-memory", "error", ("cluster.memory_gib", "layout.zero"), _memory_holds, _explain_memory),
)
STAGE_RULES: tuple[Rule, ...] = (
    Rule("uneven-stages", "warning", ("layout.stages",), _even_enough, _explain_uneven),
    Rule("heaviest-stage", "warning", ("layout.stages",), _ends_hold, _explain_ends),
)
