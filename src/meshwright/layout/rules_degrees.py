"""Errors of the degrees: what does not divide, and how many devices a layout needs."""

from math import gcd, prod
from typing import get_args

from meshwright.layout import predicates
from meshwright.layout.given import DEGREES, asked_degrees
from meshwright.layout.problem import Explanation, Rule, origin_note, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.worlds import nearest_worlds
from meshwright.model.training import Precision

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_COUNTED = {"pp": "stages", "tp": "GPUs", "cp": "context ranks", "dp": "replicas"}  # of any degree above 1


_AT_LEAST_ONE = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "shard_group", "micro_batch", "micro_batches")


def _positive_hold(p: Proposal) -> bool:
    w = p.wanted
    return not (
        (w.dp is not None and w.dp < 1) or (w.tp is not None and w.tp < 1) or (w.pp is not None and w.pp < 1)
        or (w.cp is not None and w.cp < 1) or (w.ep is not None and w.ep < 1) or (w.etp is not None and w.etp < 1)
        or (w.vpp is not None and w.vpp < 1) or (w.shard_group is not None and w.shard_group < 1)
        or (w.micro_batch is not None and w.micro_batch < 1) or (w.micro_batches is not None and w.micro_batches < 1)
    )  # fmt: skip


def _explain_positive(p: Proposal) -> Explanation:
    values = {name: getattr(p.wanted, name) for name in _AT_LEAST_ONE}
    wrong = [f"{name} = {value}" for name, value in values.items() if value is not None and value < 1]
    return Explanation(
        f"{', '.join(wrong)}: there is at least one of each", tuple(f"{w.split()[0]} = 1" for w in wrong)
    )


POSITIVE = Rule(
    "at-least-one", "error", ("layout.dp", "layout.tp", "layout.pp", "batch.micro_batch"),
    _positive_hold, _explain_positive,
)  # fmt: skip


def _world_holds(p: Proposal) -> bool:
    w, gpus = p.wanted, p.cluster.gpus
    if w.dp is not None and w.tp is not None and w.pp is not None and w.cp is not None:
        return bool(predicates.world_matches(w.dp, w.tp, w.pp, w.cp, gpus))
    return bool(predicates.divides(prod(asked_degrees(p).values()), gpus))


def _explain_world(p: Proposal) -> Explanation:
    asked = asked_degrees(p)
    counted = [f"{asked[name]} {noun}" for name, noun in _COUNTED.items() if asked.get(name, 1) > 1]
    world = prod(asked.values())
    product = " · ".join(f"{spelled(p, f'layout.{name}').removeprefix('layout.')} {asked[name]}" for name in asked)
    found = f"{' × '.join(counted) or 'one device'} = {world} GPUs, not {p.cluster.gpus}"
    if len(asked) < len(DEGREES) and world < p.cluster.gpus:
        found = f"{p.cluster.gpus} GPUs are not a multiple of {' × '.join(counted)} = {world}"
    found += f"{origin_note(p, 'cluster.gpus')} (world = {product})"
    return Explanation(found, tuple(
        " · ".join(f"{name} {degree}" for name, degree in near.items() if degree > 1 or name in asked)
        for near in nearest_worlds(p)
    ))  # fmt: skip


def _tensor_degrees(p: Proposal, *divided: int) -> tuple[str, ...]:
    """Legal tensor degrees as people need them: those within a node, and whether larger ones exist."""
    legal = predicates.common_divisors(*divided)
    node = [degree for degree in legal if degree <= p.cluster.gpus_per_node]
    beyond = [degree for degree in legal if degree > p.cluster.gpus_per_node]
    text = f"{spelled(p, 'layout.tp')} = {', '.join(map(str, node))}"
    return (text + (f" ({', '.join(map(str, beyond))} exceed a node)" if beyond else ""),)


def _heads_hold(p: Proposal) -> bool:
    return p.wanted.tp is None or bool(predicates.divides(p.wanted.tp, p.arch.heads))


def _explain_heads(p: Proposal) -> Explanation:
    tp, heads = p.wanted.tp or 1, p.arch.heads
    return Explanation(
        f"{heads} attention heads cannot be split over {tp} tensor ranks: {heads} mod {tp} = {heads % tp}",
        _tensor_degrees(p, heads, p.arch.kv_heads),
    )


def _kv_heads_hold(p: Proposal) -> bool:
    tp, kv = p.wanted.tp, p.arch.kv_heads
    return tp is None or kv == p.arch.heads or bool(predicates.divides(tp, kv))


def _explain_kv_heads(p: Proposal) -> Explanation:
    tp, heads, kv = p.wanted.tp or 1, p.arch.heads, p.arch.kv_heads
    return Explanation(
        f"{kv} KV heads are not divisible by {tp} tensor ranks ({heads} query heads share them): each rank needs whole "
        f"KV heads, and copies of one are not kept on several ranks",
        _tensor_degrees(p, heads, kv),
    )


def _ffn_holds(p: Proposal) -> bool:
    if p.arch.experts and p.wanted.etp is not None:
        return p.arch.ffn_hidden % p.wanted.etp == 0
    return p.wanted.tp is None or p.arch.ffn_hidden % p.wanted.tp == 0


def _explain_ffn(p: Proposal) -> Explanation:
    width = p.arch.ffn_hidden
    experts = p.arch.experts and p.wanted.etp is not None
    degree = (p.wanted.etp if experts else p.wanted.tp) or 1
    below, above = predicates.around(width, degree)
    node = [str(d) for d in predicates.common_divisors(width, p.arch.heads) if d <= p.cluster.gpus_per_node]
    return Explanation(
        f"a feed-forward width of {width} cannot be cut into {degree} equal parts: {width} mod {degree} = "
        f"{width % degree}",
        (f"{'etp' if experts else 'tp'} = {', '.join(node)}", f"ffn_hidden = {below} or {above}"),
    )


def _sequence_holds(p: Proposal) -> bool:
    w = p.wanted
    return p.seq_len % predicates.sequence_multiple(w.tp or 1, w.cp or 1, bool(w.sp)) == 0


def _explain_sequence(p: Proposal) -> Explanation:
    w = p.wanted
    tp, cp = w.tp or 1, w.cp or 1
    multiple = predicates.sequence_multiple(tp, cp, bool(w.sp))
    parts = ([f"2 · cp {cp}"] if cp > 1 else []) + ([f"tp {tp} (sequence parallelism)"] if w.sp and tp > 1 else [])
    below, above = predicates.around(p.seq_len, multiple)
    return Explanation(
        f"sequences of {p.seq_len} tokens cannot be cut into {' · '.join(parts)} = {multiple} equal slices",
        (f"{spelled(p, 'batch.seq_len')} = " + (f"{below} or {above}" if below < p.seq_len else str(above)),),
    )


def _experts_hold(p: Proposal) -> bool:
    ep = p.wanted.ep or 1
    return ep == 1 or (p.arch.experts > 0 and p.arch.experts % ep == 0)


def _explain_experts(p: Proposal) -> Explanation:
    ep, experts = p.wanted.ep or 1, p.arch.experts
    if not experts:
        return Explanation(f"{p.arch.name} has no experts to spread over {ep} ranks", ("ep = 1",))
    most, even = -(-experts // ep), experts / ep
    legal = predicates.common_divisors(experts)
    below = max(d for d in legal if d < ep)
    above = min((d for d in legal if d > ep), default=below)
    return Explanation(
        f"{experts} experts do not divide by {ep} ranks: {experts} mod {ep} = {experts % ep}; at the very best the "
        f"busiest rank holds {most}, {most / even:.2f}× the mean",
        (f"ep = {below} or {above}" if above != below else f"ep = {below}",),
    )


def _expert_ranks_hold(p: Proposal) -> bool:
    w = p.wanted
    if w.ep is None or w.dp is None or w.cp is None or w.tp is None:
        return True
    return bool(predicates.expert_ranks_fit(w.dp, w.cp, w.tp, w.ep, w.tp if w.etp is None else w.etp))


def _explain_expert_ranks(p: Proposal) -> Explanation:
    w = p.wanted
    dp, cp, tp, ep = w.dp or 1, w.cp or 1, w.tp or 1, w.ep or 1
    etp = tp if w.etp is None else w.etp
    ranks = dp * cp * tp
    shared = predicates.common_divisors(gcd(p.arch.experts or ep, max(1, ranks // etp)))
    return Explanation(
        f"ep {ep} · etp {etp} = {ep * etp} ranks cannot be carved out of dp {dp} · cp {cp} · tp {tp} = {ranks}",
        (f"ep = {', '.join(map(str, shared))}",),
    )


def _zero_holds(p: Proposal) -> bool:
    return p.wanted.zero is None or 0 <= p.wanted.zero <= 3


def _explain_zero(p: Proposal) -> Explanation:
    return Explanation(
        f"there is no ZeRO stage {p.wanted.zero}",
        ("0 replicate", "1 shard optimizer states", "2 and gradients", "3 and parameters"),
    )


def _shard_group_holds(p: Proposal) -> bool:
    w = p.wanted
    if w.shard_group is None or w.dp is None:
        return True
    return w.dp * (w.cp or 1) % w.shard_group == 0


def _explain_shard_group(p: Proposal) -> Explanation:
    ranks = (p.wanted.dp or 1) * (p.wanted.cp or 1)
    legal = predicates.common_divisors(ranks)
    return Explanation(
        f"{ranks} data-parallel ranks cannot be cut into shard groups of {p.wanted.shard_group}",
        (f"{spelled(p, 'layout.shard_group')} = {', '.join(map(str, legal))}",),
    )


def _precisions(p: Proposal) -> tuple[Precision, ...]:
    """What the device multiplies in hardware; a CPU computes in any ordinary float."""
    device = p.cluster.device
    can = ("fp32", "fp16", "bf16") if device.kind == "cpu" else tuple(device.peak_flops)
    return tuple(precision for precision in PRECISIONS if precision in can)


def _precision_holds(p: Proposal) -> bool:
    return p.training.precision in _precisions(p)


def _explain_precision(p: Proposal) -> Explanation:
    device, precision = p.cluster.device, p.training.precision
    legal = f"{spelled(p, 'training.precision')} = {', '.join(_precisions(p))}"
    return Explanation(f"{device.name} has no matrix units for {precision}", (legal,))


DEGREE_RULES: tuple[Rule, ...] = (
    POSITIVE,
    Rule("world-size", "error", (*(f"layout.{n}" for n in DEGREES), "cluster.gpus"), _world_holds, _explain_world),
    Rule("heads-divide", "error", ("layout.tp", "model.heads"), _heads_hold, _explain_heads),
    Rule("kv-heads-divide", "error", ("layout.tp", "model.kv_heads"), _kv_heads_hold, _explain_kv_heads),
    Rule("ffn-divides", "error", ("layout.tp", "layout.etp", "model.ffn_hidden"), _ffn_holds, _explain_ffn),
    Rule(
        "sequence-divides", "error", ("batch.seq_len", "layout.tp", "layout.sp", "layout.cp"),
        _sequence_holds, _explain_sequence,
    ),
    Rule("experts-divide", "error", ("layout.ep", "model.experts"), _experts_hold, _explain_experts),
    Rule("expert-ranks", "error", ("layout.ep", "layout.etp", "layout.dp"), _expert_ranks_hold, _explain_expert_ranks),
    Rule("zero-stage", "error", ("layout.zero",), _zero_holds, _explain_zero),
    Rule("shard-group", "error", ("layout.shard_group", "layout.dp"), _shard_group_holds, _explain_shard_group),
    Rule("precision", "error", ("training.precision", "cluster.gpu"), _precision_holds, _explain_precision),
)  # fmt: skip
