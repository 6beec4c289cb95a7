"""ZeRO, shard groups, the gradient exchange and offload: what is impossible, and what is paid for nothing."""

from meshwright.basics.quantities import bytes_text, gib
from meshwright.layout import predicates
from meshwright.layout.footprint import parameters
from meshwright.layout.given import micro_batches_of, settled
from meshwright.layout.problem import Explanation, Rule, count, spelled
from meshwright.layout.proposal import Proposal
from meshwright.model.states import gradient_bytes


def replicas_of(p: Proposal) -> int | None:
    """Ranks that hold the same parameters without sharding, dp * cp; None while dp is open."""
    w = settled(p).wanted
    return None if w.dp is None else w.dp * (w.cp or 1)


def _zero_holds(p: Proposal) -> bool:
    return p.wanted.zero is None or 0 <= p.wanted.zero <= 3


def _explain_zero(p: Proposal) -> Explanation:
    return Explanation(
        f"there is no ZeRO stage {p.wanted.zero}",
        ("0 replicate", "1 shard optimizer states", "2 and gradients", "3 and parameters"),
    )


def _shard_group_holds(p: Proposal) -> bool:
    group = p.wanted.shard_group
    replicas = None if group is None else replicas_of(p)
    return group is None or replicas is None or replicas % group == 0


def _explain_shard_group(p: Proposal) -> Explanation:
    ranks = replicas_of(p) or 1
    legal = predicates.common_divisors(ranks)
    return Explanation(
        f"{ranks} data-parallel ranks cannot be cut into shard groups of {p.wanted.shard_group}: {ranks} mod "
        f"{p.wanted.shard_group} = {ranks % (p.wanted.shard_group or 1)}",
        (f"{spelled(p, 'layout.shard_group')} = {', '.join(map(str, legal))}",),
    )


def _offload_holds(p: Proposal) -> bool:
    w = p.wanted
    return w.offload != "parameters" or w.zero in (None, 3)


def _explain_offload(p: Proposal) -> Explanation:
    field = spelled(p, "layout.offload")
    return Explanation(
        f"parameters leave for CPU memory between their uses only where they are sharded and gathered layer by layer, "
        f"which is ZeRO-3 (FSDP), not ZeRO-{p.wanted.zero}",
        (f"{spelled(p, 'layout.zero')} = 3", f"{field} = optimizer", f"{field} = none"),
    )


def _shards_hold(p: Proposal) -> bool:
    return not p.wanted.zero or replicas_of(p) != 1


def _explain_shards(p: Proposal) -> Explanation:
    return Explanation(
        f"ZeRO-{p.wanted.zero} shards over replicas, and there is one: nothing is sharded",
        (f"{spelled(p, 'layout.zero')} = 0",),
    )


def _inside_holds(p: Proposal) -> bool:
    w, node, replicas = p.wanted, p.cluster.joined, replicas_of(p)
    if w.shard_group is None or not w.zero or w.tp is None or p.cluster.one_domain or w.shard_group == replicas:
        return True
    return node % (w.shard_group * w.tp) == 0


def _explain_inside(p: Proposal) -> Explanation:
    w, node = p.wanted, p.cluster.joined
    size, tp = w.shard_group or 1, w.tp or 1
    room = max(1, node // tp)
    inside = [d for d in predicates.common_divisors(replicas_of(p) or room) if room % d == 0]
    slow, fast = p.cluster.inter.bytes_per_s.value / 1e9, p.cluster.intra.bytes_per_s.value / 1e9
    lie = f"shard groups of {size}" + (f" · tp {tp} = {size * tp} devices" if tp > 1 else "")
    return Explanation(
        f"{lie} reach across nodes of {node}: what they gather and reduce then runs at {slow:.0f} GB/s instead of "
        f"{fast:.0f} GB/s, which is what groups inside a node are for",
        (f"{spelled(p, 'layout.shard_group')} = {', '.join(map(str, inside))}",),
    )


def _gradients(p: Proposal) -> float:
    """Bytes of the whole gradient on the mean rank of a pipeline."""
    w = settled(p).wanted
    return parameters(p.arch, w.tp or 1, w.ep or 1, w.etp) / (w.pp or 1) * gradient_bytes(p.training)


def _exchange_holds(p: Proposal) -> bool:
    w, m = p.wanted, micro_batches_of(p)
    if w.gradient_exchange != "micro-batch" or w.zero not in (None, 0, 1):
        return True
    return m is None or m == 1 or replicas_of(p) in (None, 1) or p.training.task == "lora"


def _explain_exchange(p: Proposal) -> Explanation:
    m, replicas = micro_batches_of(p) or 1, replicas_of(p) or 1
    once = 2 * _gradients(p) * (replicas - 1) / replicas
    return Explanation(
        f"gradients are exchanged in each of {count(m, 'micro-batch')}: {m}× the volume, {bytes_text(m * once)} a step "
        f"and device instead of {bytes_text(once)}; {m - 1} of {m} = {(m - 1) / m:.1%} of it is wasted, because the "
        f"sum over micro-batches can be exchanged once",
        (f"{spelled(p, 'layout.gradient_exchange')} = step",),
    )


def _whole_holds(p: Proposal) -> bool:
    w, m, replicas = p.wanted, micro_batches_of(p), replicas_of(p)
    if w.gradient_exchange != "step" or w.zero not in (2, 3) or p.training.task == "lora":
        return True
    return m == 1 or replicas in (None, 1)


def _explain_whole(p: Proposal) -> Explanation:
    replicas, whole = replicas_of(p) or 1, _gradients(p)
    shards = min(p.wanted.shard_group or replicas, replicas)
    m = micro_batches_of(p)
    times = "m times" if m is None else f"{m} times"
    return Explanation(
        f"gradients that wait for the end of the step are whole on every rank until then: {gib(whole)} "
        f"({gradient_bytes(p.training)} B a parameter) instead of the {gib(whole / shards)} that ZeRO-{p.wanted.zero} "
        f"keeps of them; what is saved is exchanging them {times} a step",
        (f"{spelled(p, 'layout.gradient_exchange')} = micro-batch",),
    )


def _offload_pays(p: Proposal) -> bool:
    return p.wanted.offload in (None, "none") or p.cluster.device.kind != "cpu"


def _explain_offload_pays(p: Proposal) -> Explanation:
    field = spelled(p, "layout.offload")
    return Explanation(
        f"{field} = {p.wanted.offload} moves states to CPU memory, and {p.cluster.device.name} computes there already: "
        f"copies are made and nothing is freed",
        (f"{field} = none",),
    )


SHARDING_RULES: tuple[Rule, ...] = (
    Rule("zero-stage", "error", ("layout.zero",), _zero_holds, _explain_zero),
    Rule(
        "shard-group", "error", ("layout.shard_group", "layout.dp", "layout.cp"),
        _shard_group_holds, _explain_shard_group,
    ),
    Rule("offload-needs-sharding", "error", ("layout.offload", "layout.zero"), _offload_holds, _explain_offload),
)  # fmt: skip
SHARDING_WASTE: tuple[Rule, ...] = (
    Rule("nothing-to-shard", "warning", ("layout.zero", "layout.dp"), _shards_hold, _explain_shards),
    Rule(
        "shard-group-across-nodes", "warning", ("layout.shard_group", "layout.tp", "cluster.gpus_per_node"),
        _inside_holds, _explain_inside,
    ),
    Rule(
        "exchange-each-micro-batch", "warning", ("layout.gradient_exchange", "layout.zero", "batch.micro_batches"),
        _exchange_holds, _explain_exchange,
    ),
    Rule(
        "whole-gradient", "warning", ("layout.gradient_exchange", "layout.zero"), _whole_holds, _explain_whole
    ),
    Rule("offload-on-cpu", "warning", ("layout.offload", "cluster.gpu"), _offload_pays, _explain_offload_pays),
)  # fmt: skip
