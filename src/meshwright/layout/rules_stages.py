"""Judging a partition: memory that cannot be enough, stages that do too much, ends that are too heavy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from meshwright.basics.quantities import count_text, gib
from meshwright.layout.footprint import Shares, least_states, parameters, recipe_of, states, unit_states
from meshwright.layout.given import unit_names
from meshwright.layout.partition import balance
from meshwright.layout.problem import Explanation, Rule, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules_waste import shares_of
from meshwright.layout.schedules import V_SHAPED, default_placement
from meshwright.layout.thresholds import CROWDED, DOMINANT, HEAVY, UNEVEN
from meshwright.model.architecture import Architecture
from meshwright.model.flops import unit_forward_flops
from meshwright.model.parameters import unit_parameters
from meshwright.model.units import compact, units_of


@lru_cache(maxsize=64)
def work_of(arch: Architecture, seq_len: int) -> dict[str, float]:
    """Forward FLOPs of one token in each unit."""
    return {unit.name: unit_forward_flops(arch, unit, 1, seq_len) for unit in units_of(arch)}


@lru_cache(maxsize=64)
def _sizes(arch: Architecture, tp: int, ep: int = 1, etp: int | None = None) -> dict[str, int]:
    return {unit.name: unit_parameters(arch, unit, tp, ep, etp) for unit in units_of(arch)}


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


def _loads(stages: Sequence[Sequence[str]], placement: tuple[int, ...], each: Mapping[str, float]) -> list[float]:
    """The sum over each rank's units."""
    loads = [0.0] * (max(placement) + 1)
    for stage, rank in zip(stages, placement, strict=True):
        loads[rank] += sum(each[unit] for unit in stage)
    return loads


def _cluster_holds(p: Proposal) -> bool:
    return least_states(p, Shares()) <= p.cluster.gpus * p.cluster.memory_bytes


def _explain_cluster(p: Proposal) -> Explanation:
    least, gpus, each = least_states(p, Shares()), p.cluster.gpus, p.cluster.memory_bytes
    total = parameters(p.arch)
    need = -(-int(least) // each)
    return Explanation(
        f"{count_text(total)} parameters with {least / total:g} B of weights, gradients and optimizer each are "
        f"{gib(least)}, and {gpus} × {gib(each)} = {gib(gpus * each)}: however it is laid out, the model does not fit",
        (
            f"{spelled(p, 'cluster.gpus')} = {need} or more hold the states, activations not counted",
            f"devices with {gib(least / gpus)} or more",
        ),
    )


def _memory_holds(p: Proposal) -> bool:
    of = _leanest(p)
    return of is None or least_states(p, of) <= p.cluster.memory_bytes or not _cluster_holds(p)


def _leanest(p: Proposal) -> Shares | None:
    """The degrees as far as they are fixed; an open ZeRO stage counts as the one that keeps least."""
    of = shares_of(p)
    return replace(of, zero=3, shard_group=p.wanted.shard_group) if of is not None and p.wanted.zero is None else of


def _explain_memory(p: Proposal) -> Explanation:
    of = _leanest(p)
    assert of is not None
    held = parameters(p.arch, of.tp, of.ep, of.etp) / of.pp
    over = f"{of.shards}" + (f" (experts over {of.expert_shards})" if of.expert_shards != of.shards else "")
    need = states(p, of) if p.wanted.offload in (None, "none") else least_states(p, of)
    helps = [
        f"{spelled(p, 'layout.zero')} = {zero}: {gib(states(p, replace(of, zero=zero)))}"
        for zero in range(of.zero + 1, 4)
        if states(p, replace(of, zero=zero)) < p.cluster.memory_bytes
    ]
    devices = -(-int(states(p, Shares())) // p.cluster.memory_bytes)
    left = "" if p.wanted.offload in (None, "none") else f", {p.wanted.offload} offloaded"
    return Explanation(
        f"{count_text(held)} parameters a rank · {recipe_of(p).text()}"
        f"{f', ZeRO-{of.zero} over {over}' if of.zero else ''}{left} = {gib(need)} of states alone, and a "
        f"device has {gib(p.cluster.memory_bytes)}",
        tuple(helps) or (f"spread the states over more than {devices} devices (tp · pp, or zero = 3)",),
    )


def _best(p: Proposal, placement: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    """The partition with the least work on the busiest stage: of one stage a rank also that of the busiest rank."""
    return balance(unit_names(p.arch), work_of(p.arch, p.seq_len), len(placement))


def _busiest(stages: Sequence[Sequence[str]], placement: tuple[int, ...], work: Mapping[str, float]) -> float:
    """Work of the busiest rank."""
    return max(_loads(stages, placement, work))


def _even_enough(p: Proposal) -> bool:
    placement = _placed(p)
    if placement is None:
        return True
    work = work_of(p.arch, p.seq_len)
    busiest = _busiest(p.wanted.stages or (), placement, work)
    if busiest <= UNEVEN * sum(work.values()) / (max(placement) + 1):  # no partition is better than the mean
        return True
    return busiest <= UNEVEN * _busiest(_best(p, placement), placement, work)


def _explain_uneven(p: Proposal) -> Explanation:
    placement = _placed(p)
    assert placement is not None
    work, best, stages = work_of(p.arch, p.seq_len), _best(p, placement), p.wanted.stages or ()
    loads = _loads(stages, placement, work)
    busiest = loads.index(max(loads))
    stage = placement.index(busiest)
    mean, idlest = sum(loads) / len(loads), min(loads)
    reached = _busiest(best, placement, work)
    shown = str([list(compact(part)) for part in best]).replace("'", '"')
    return Explanation(
        f"stage {stage} ({', '.join(compact(stages[stage]))}) does {max(loads) / mean:.2f}× the mean work (FLOPs); "
        f"even without a bubble the idlest rank waits {1 - idlest / max(loads):.0%} of the time. The most even "
        f"stages of the same units give {reached / mean:.2f}×",
        (f"{spelled(p, 'layout.stages')} = {shown}",),
    )


def _ends_hold(p: Proposal) -> bool:
    placement, of = _placed(p), shares_of(p)
    if placement is None or of is None:
        return True
    loads = _loads(p.wanted.stages or (), placement, _sizes(p.arch, of.tp, of.ep, of.etp))
    if max(loads) <= HEAVY * sum(loads) / len(loads):
        return True
    return max(_loads(p.wanted.stages or (), placement, unit_states(p, of))) < CROWDED * p.cluster.memory_bytes


def _explain_ends(p: Proposal) -> Explanation:
    placement, of = _placed(p), shares_of(p)
    assert placement is not None
    assert of is not None
    sizes = _sizes(p.arch, of.tp, of.ep, of.etp)
    loads = _loads(p.wanted.stages or (), placement, sizes)
    rank = loads.index(max(loads))
    held = [unit for stage, on in zip(p.wanted.stages or (), placement, strict=True) if on == rank for unit in stage]
    ends = sum(sizes[unit] for unit in held if unit in ("embed", "head"))
    copies = " (tied: each of the two ends holds a copy)" if p.arch.tied else ""
    because = f", {count_text(ends)} of them in embedding and output{copies}" if ends else ""
    states_of = _loads(p.wanted.stages or (), placement, unit_states(p, of))
    lighter = balance(unit_names(p.arch), {name: float(size) for name, size in sizes.items()}, max(placement) + 1)
    shown = str([list(compact(part)) for part in lighter]).replace("'", '"')
    return Explanation(
        f"pipeline rank {rank} is the heaviest: {count_text(loads[rank])} parameters{because}, "
        f"{loads[rank] * len(loads) / sum(loads):.2f}× the mean, {gib(states_of[rank])} of states (ZeRO-{of.zero})",
        (f"even in parameters: {shown}",),
    )


def _ends_share(p: Proposal) -> tuple[float, float, float]:
    """Parameters of embedding, of head, and of all units."""
    sizes = _sizes(p.arch, 1)
    return float(sizes["embed"]), float(sizes["head"]), float(sum(sizes.values()))


def _balanced_hold(p: Proposal) -> bool:
    pp = p.wanted.pp
    if pp is None or pp == 1 or pp > len(unit_names(p.arch)):
        return True
    embed, head, total = _ends_share(p)
    return embed + head < DOMINANT * total and (pp == 2 or max(embed, head) < 2 * total / pp)


def _explain_balanced(p: Proposal) -> Explanation:
    embed, head, total = _ends_share(p)
    pp, middle = p.wanted.pp or 1, total - embed - head
    layers = middle / p.arch.layers
    worst = max(embed, head) * pp / total
    others = f" and the {pp - 2} stages between share {count_text(middle)}" if pp > 2 else ""
    return Explanation(
        f"embedding and head hold {(embed + head) / total:.1%} of {count_text(total)} parameters ({count_text(embed)} "
        f"and {count_text(head)}; a layer {count_text(layers)}): the best that {pp} stages can do is to put them on "
        f"different ones{others}; the heaviest then holds {worst:.2f}× the mean",
        (f"{spelled(p, 'layout.pp')} = 1", "a smaller vocabulary, or tp to divide it"),
    )


FIT_RULES: tuple[Rule, ...] = (
    Rule("cluster-too-small", "error", ("cluster.gpus", "cluster.memory_gib"), _cluster_holds, _explain_cluster),
    Rule("states-exceed-memory", "error", ("cluster.memory_gib", "layout.zero"), _memory_holds, _explain_memory),
)
STAGE_RULES: tuple[Rule, ...] = (
    Rule("uneven-stages", "warning", ("layout.stages",), _even_enough, _explain_uneven),
    Rule("heaviest-stage", "warning", ("layout.stages",), _ends_hold, _explain_ends),
    Rule("ends-dominate", "warning", ("layout.pp", "model.vocab"), _balanced_hold, _explain_balanced),
)
