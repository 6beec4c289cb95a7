"""Errors of the degrees: what does not divide, and how many devices a layout needs."""

from collections.abc import Iterator
from math import prod

from meshwright.basics.quantities import bytes_text
from meshwright.layout import predicates
from meshwright.layout.given import DEGREES, asked_degrees
from meshwright.layout.problem import Explanation, Rule, origin_note, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.worlds import nearest_worlds
from meshwright.model.states import state_bytes

_COUNTED = {"pp": "stages", "tp": "GPUs", "cp": "context ranks", "dp": "replicas"}  # of any degree above 1


_AT_LEAST_ONE = (
    "dp", "tp", "pp", "cp", "ep", "etp", "vpp", "shard_group", "loss_chunk", "vocab_multiple", "recompute_layers",
    "micro_batch", "micro_batches",
)  # fmt: skip


def _positive_hold(p: Proposal) -> bool:
    w = p.wanted
    return not (
        (w.dp is not None and w.dp < 1) or (w.tp is not None and w.tp < 1) or (w.pp is not None and w.pp < 1)
        or (w.cp is not None and w.cp < 1) or (w.ep is not None and w.ep < 1) or (w.etp is not None and w.etp < 1)
        or (w.vpp is not None and w.vpp < 1) or (w.shard_group is not None and w.shard_group < 1)
        or (w.loss_chunk is not None and w.loss_chunk < 1) or (w.vocab_multiple is not None and w.vocab_multiple < 1)
        or (w.recompute_layers is not None and w.recompute_layers < 1)
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
    node = [degree for degree in legal if degree <= p.cluster.joined]
    beyond = [degree for degree in legal if degree > p.cluster.joined]
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


def _copies(p: Proposal, tp: int) -> str:
    """What a copy of the KV heads on every rank that lacks one would take, where the copies would come out even."""
    arch, recipe = p.arch, state_bytes(p.training)
    if arch.latent is not None or tp % arch.kv_heads or arch.heads % tp:
        return ""
    head = 2 * arch.hidden * arch.head_dim * arch.layers * recipe.total  # weights of k and v with their states
    held = head * (1 - arch.kv_heads / tp)
    return f" (a copy of one on each rank would hold {bytes_text(held)} a rank more than an even share)"


def _explain_kv_heads(p: Proposal) -> Explanation:
    tp, heads, kv = p.wanted.tp or 1, p.arch.heads, p.arch.kv_heads
    return Explanation(
        f"{kv} KV heads are not divisible by {tp} tensor ranks ({heads} query heads share them): {kv} mod {tp} = "
        f"{kv % tp}, each rank needs whole KV heads, and copies of one are not kept on several ranks{_copies(p, tp)}",
        _tensor_degrees(p, heads, kv),
    )


def _widths(p: Proposal) -> Iterator[tuple[str, int, str, int]]:
    """What a tensor degree cuts in the feed-forward networks: (key of [model], width, key of [layout], degree)."""
    arch, tp, etp = p.arch, p.wanted.tp, p.wanted.etp
    experts = tp if etp is None else etp
    if arch.experts and experts is not None:
        yield "ffn_hidden", arch.ffn_hidden, "tp" if etp is None else "etp", experts
    if tp is None:
        return
    if not arch.experts:
        yield "ffn_hidden", arch.ffn_hidden, "tp", tp
        return
    if arch.dense_layers:
        yield "dense_ffn_hidden", arch.dense_ffn_hidden or arch.ffn_hidden, "tp", tp
    if arch.shared_experts:
        yield "shared_ffn_hidden", arch.shared_ffn_hidden or arch.ffn_hidden * arch.shared_experts, "tp", tp


def _ffn_holds(p: Proposal) -> bool:
    if not p.arch.experts:
        return p.wanted.tp is None or p.arch.ffn_hidden % p.wanted.tp == 0
    return all(width % degree == 0 for _, width, _, degree in _widths(p))


def _explain_ffn(p: Proposal) -> Explanation:
    key, width, axis, degree = next(row for row in _widths(p) if row[1] % row[3])
    below, above = predicates.around(width, degree)
    within = predicates.common_divisors(width, p.arch.heads) if axis == "tp" else predicates.common_divisors(width)
    node = [str(d) for d in within if d <= p.cluster.joined]
    return Explanation(
        f"a feed-forward width of {width} ({key}) cannot be cut into {degree} equal parts: {width} mod {degree} = "
        f"{width % degree}",
        (f"{spelled(p, f'layout.{axis}')} = {', '.join(node)}", f"{spelled(p, f'model.{key}')} = {below} or {above}"),
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
)  # fmt: skip
