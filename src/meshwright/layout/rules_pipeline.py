"""Errors of the pipeline: stages, placement, chunks, and what a schedule demands of the micro-batches."""

from collections import Counter

from meshwright.layout.bubble import ideal_idle
from meshwright.layout.given import chunks_of, micro_batches_of, own_placement, unit_names
from meshwright.layout.partition import even_stages
from meshwright.layout.problem import Explanation, Rule, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.schedules import V_SHAPED, micro_batch_rule, takes_chunks
from meshwright.model.units import compact


def _enough_units_hold(p: Proposal) -> bool:
    w = p.wanted
    return w.pp is None or w.pp * (w.vpp or 1) <= len(unit_names(p.arch))


def _explain_enough_units(p: Proposal) -> Explanation:
    units, pp, vpp = len(unit_names(p.arch)), p.wanted.pp or 1, p.wanted.vpp or 1
    per_layer = (units - 2) // p.arch.layers
    chunks = f" · {vpp} chunks" if vpp > 1 else ""
    return Explanation(
        f"{pp} stages{chunks} need at least {pp * vpp} units, and the model has {units}: embed, {p.arch.layers} layers "
        f"of {per_layer}, head",
        (f"{spelled(p, 'layout.pp')} from 1 to {units // vpp}",),
    )


def _cover_holds(p: Proposal) -> bool:
    stages = p.wanted.stages
    if stages is None:
        return True
    return all(stages) and tuple(unit for stage in stages for unit in stage) == unit_names(p.arch)


def _explain_cover(p: Proposal) -> Explanation:
    names, stages = unit_names(p.arch), p.wanted.stages or ()
    given = [unit for stage in stages for unit in stage]
    counts = Counter(given)
    faults: list[str] = []
    for what, units in (
        ("missing", [name for name in names if name not in counts]),
        ("held twice", [name for name in names if counts[name] > 1]),
        ("unknown", [name for name in counts if name not in names]),
    ):
        if units:
            faults.append(f"{what}: {', '.join(compact(units) if what != 'unknown' else units)}")
    empty = [str(index) for index, stage in enumerate(stages) if not stage]
    if empty:
        faults.append(f"empty: stage {', '.join(empty)}")
    if not faults:
        place = next(i for i, (have, should) in enumerate(zip(given, names, strict=True)) if have != should)
        faults.append(f"out of order: {given[place]} stands where {names[place]} belongs")
    legal: tuple[str, ...] = ()
    if 1 <= len(stages) <= len(names):
        even = [list(compact(stage)) for stage in even_stages(p.arch, len(stages))]
        legal = (f"for example {even}".replace("'", '"'),)
    return Explanation(f"the stages must hold every unit once and in order; {'; '.join(faults)}", legal)


def _count_holds(p: Proposal) -> bool:
    w = p.wanted
    if w.placement is not None:
        return w.stages is None or len(w.placement) == len(w.stages)
    if w.stages is None or w.pp is None:
        return True
    return len(w.stages) == w.pp * w.vpp if w.vpp is not None else len(w.stages) % w.pp == 0 and len(w.stages) > 0


def _explain_count(p: Proposal) -> Explanation:
    w, found = p.wanted, len(p.wanted.stages or ())
    if w.placement is not None:
        return Explanation(
            f"placement names a pipeline rank for {len(w.placement)} stages, and there are {found}",
            (f"{found} entries",),
        )
    pp, vpp = w.pp or 1, w.vpp or 1
    if w.vpp is None:
        return Explanation(
            f"{found} stages cannot be dealt to {pp} pipeline ranks alike",
            (f"{pp} or {2 * pp} stages", f"or a {spelled(p, 'layout.placement')} that says which rank holds which"),
        )
    whole = f"; {spelled(p, 'layout.vpp')} = {found // pp}" if found % pp == 0 and found >= pp else ""
    message = f"pp {pp} · vpp {vpp} = {pp * vpp} stages, and {found} are listed"
    return Explanation(message, (f"{pp * vpp} stages{whole}",))


def _placement_holds(p: Proposal) -> bool:
    placement, pp = p.wanted.placement, p.wanted.pp
    if placement is None:
        return True
    return len(placement) > 0 and set(placement) == set(range(max(placement) + 1 if pp is None else pp))


def _explain_placement(p: Proposal) -> Explanation:
    placement = p.wanted.placement or ()
    pp = p.wanted.pp if p.wanted.pp is not None else max(placement, default=0) + 1
    beyond = sorted({rank for rank in placement if not 0 <= rank < pp})
    idle = sorted(set(range(pp)) - set(placement))
    faults = [f"there is no pipeline rank {', '.join(map(str, beyond))}"] if beyond else []
    faults += [f"pipeline rank {', '.join(map(str, idle))} holds nothing"] if idle else []
    return Explanation(f"{'; '.join(faults)} (pp = {pp})", (f"every rank from 0 to {pp - 1} at least once",))


def _chunks_hold(p: Proposal) -> bool:
    w = p.wanted
    if w.schedule is None or w.pp is None or own_placement(p):
        return True
    return takes_chunks(w.schedule, w.pp, chunks_of(p))


def _explain_chunks(p: Proposal) -> Explanation:
    schedule, chunks = p.wanted.schedule, chunks_of(p)
    field = spelled(p, "layout.vpp")
    if schedule in V_SHAPED:
        return Explanation(f"{schedule} folds two chunks a rank into a V, not {chunks}", (f"{field} = 2",))
    several = f"{spelled(p, 'layout.schedule')} = interleaved, looped-bfs or zb-h1"
    return Explanation(f"{schedule} runs one chunk a rank, not {chunks}", (f"{field} = 1", several))


def _schedule_holds(p: Proposal) -> bool:
    w = p.wanted
    if w.schedule in (None, "gpipe", "1f1b", "looped-bfs", "zbv") or w.pp is None or w.pp == 1:
        return True
    count = micro_batches_of(p)
    return count is None or own_placement(p) or micro_batch_rule(w.schedule, w.pp, chunks_of(p), count) is None


def _explain_schedule(p: Proposal) -> Explanation:
    w, count = p.wanted, micro_batches_of(p) or 0
    pp, chunks = w.pp or 1, chunks_of(p)
    assert w.schedule is not None
    why = micro_batch_rule(w.schedule, pp, chunks, count) or ""
    counts = [m for m in range(1, 4 * pp + count) if micro_batch_rule(w.schedule, pp, chunks, m) is None]
    below = max((m for m in counts if m < count), default=None)
    above = min((m for m in counts if m > count), default=None)
    near = " or ".join(str(m) for m in (below, above) if m is not None)
    idle = ideal_idle("1f1b", pp, 1, count) or 0.0
    plain = f"{spelled(p, 'layout.schedule')} = 1f1b (idle {idle:.1%} with {count} on {pp} stages)"
    legal = (f"{spelled(p, 'batch.micro_batches')} = {near}", plain)
    return Explanation(why.partition(" (legal")[0], legal)


def _recompute_layers_hold(p: Proposal) -> bool:
    return p.wanted.recompute_layers is None or p.wanted.recompute in (None, "full")


def _explain_recompute_layers(p: Proposal) -> Explanation:
    return Explanation(
        f"recompute_layers = {p.wanted.recompute_layers} says how many layers are recomputed in full, but recompute is "
        f"{p.wanted.recompute}",
        (f"{spelled(p, 'layout.recompute')} = full", f"leave out {spelled(p, 'layout.recompute_layers')}"),
    )


PIPELINE_RULES: tuple[Rule, ...] = (
    Rule("enough-units", "error", ("layout.pp", "layout.vpp"), _enough_units_hold, _explain_enough_units),
    Rule("stages-cover", "error", ("layout.stages",), _cover_holds, _explain_cover),
    Rule("stage-count", "error", ("layout.stages", "layout.placement", "layout.pp"), _count_holds, _explain_count),
    Rule("placement", "error", ("layout.placement", "layout.pp"), _placement_holds, _explain_placement),
    Rule("chunks", "error", ("layout.vpp", "layout.schedule"), _chunks_hold, _explain_chunks),
    Rule(
        "schedule-micro-batches", "error", ("layout.schedule", "batch.micro_batches", "layout.pp"),
        _schedule_holds, _explain_schedule,
    ),
    Rule(
        "recompute-layers", "error", ("layout.recompute_layers", "layout.recompute"),
        _recompute_layers_hold, _explain_recompute_layers,
    ),
)  # fmt: skip
