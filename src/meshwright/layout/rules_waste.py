"""Warnings: what runs, but wastes time or memory that a neighbouring choice would not."""

from dataclasses import replace

from meshwright.basics.quantities import gib
from meshwright.layout.bubble import ideal_idle, micro_batches_for_idle, own_idle
from meshwright.layout.degrees import RECOMPUTE
from meshwright.layout.footprint import Shares, comfortable, need, parameters
from meshwright.layout.given import chunks_of, micro_batches_of, own_placement, possible_dp, settled
from meshwright.layout.problem import Explanation, Rule, count, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.schedules import V_SHAPED
from meshwright.layout.thresholds import COMFORT, IDLE_SCHEDULE, WORTH
from meshwright.model.states import state_bytes


def shares_of(p: Proposal) -> Shares | None:
    """The degrees as far as they are fixed, None while one that divides the model is open. What else is open counts
    as usual: ZeRO-0, no recompute, one sample a micro-batch."""
    w, replicas = settled(p).wanted, possible_dp(p)
    if w.tp is None or w.pp is None or len(replicas) != 1 or (p.arch.experts and w.ep is None):
        return None
    return Shares(
        dp=replicas[0], tp=w.tp, pp=w.pp, cp=w.cp or 1, zero=w.zero or 0, recompute=w.recompute or "none",
        micro_batch=w.micro_batch or 1, micro_batches=micro_batches_of(p) or w.pp, sp=bool(w.sp), ep=w.ep or 1,
        etp=w.etp, shard_group=w.shard_group if w.zero else None,
    )  # fmt: skip


def _idle(p: Proposal) -> float | None:
    w, m = p.wanted, micro_batches_of(p)
    if w.pp is None or w.pp == 1 or m is None or own_placement(p):
        return None
    chunks = chunks_of(p)
    fits = chunks == (2 if w.schedule in V_SHAPED else 1 if w.schedule in (None, "gpipe", "1f1b") else chunks)
    return own_idle(w.schedule or "1f1b", w.pp, chunks, m) if fits else None


def _few(p: Proposal) -> bool:
    m, pp = micro_batches_of(p), p.wanted.pp
    return pp is not None and pp > 1 and m is not None and m < pp


def _few_hold(p: Proposal) -> bool:
    return not _few(p)


def _explain_few(p: Proposal) -> Explanation:
    pp, m, chunks = p.wanted.pp or 1, micro_batches_of(p) or 1, chunks_of(p)
    schedule = p.wanted.schedule or "1f1b"
    plain = (pp - 1) / (m + pp - 1)
    idle = _idle(p)
    found = f"{count(m, 'micro-batch')} for {pp} stages: "
    if schedule in ("gpipe", "1f1b") or idle is None:
        found += f"each device idles {pp - 1} of {m + pp - 1} slots = {plain:.1%}"
    else:
        found += f"under {schedule} each device idles {idle:.1%} of the step (1f1b: {plain:.1%})"
    good = micro_batches_for_idle(schedule, pp, chunks, IDLE_SCHEDULE)
    smaller = f"a smaller {spelled(p, 'batch.micro_batch')}, or a larger {spelled(p, 'batch.global')}"
    more = f"{spelled(p, 'batch.micro_batches')} = {pp} or more: {smaller}"
    return Explanation(found, (more, f"{good} keep the idle share at or below {IDLE_SCHEDULE:.0%}"))


def _bubble_holds(p: Proposal) -> bool:
    idle = _idle(p)
    return idle is None or idle <= IDLE_SCHEDULE or _few(p)


def _explain_bubble(p: Proposal) -> Explanation:
    w, m = p.wanted, micro_batches_of(p) or 1
    pp, schedule, chunks = w.pp or 1, w.schedule or "1f1b", chunks_of(p)
    idle = _idle(p) or 0.0
    good = micro_batches_for_idle(schedule, pp, chunks, IDLE_SCHEDULE)
    counts = sorted({2 * m, good})
    legal = tuple(f"{n} micro-batches: {ideal_idle(schedule, pp, chunks, n) or 0.0:.1%}" for n in counts)
    if schedule in ("gpipe", "1f1b") and m % pp == 0:
        legal = (*legal, f"{spelled(p, 'layout.schedule')} = zb-h1: {ideal_idle('zb-h1', pp, 1, m) or 0.0:.1%}")
    chunked = f" with {chunks} chunks" if chunks > 1 else ""
    return Explanation(
        f"the pipeline's own bubble: {count(m, 'micro-batch')} through {pp} stages under {schedule}{chunked} leave "
        f"each device idle {idle:.1%} of the step, were all stages equal",
        legal,
    )


def _node_holds(p: Proposal) -> bool:
    tp, node = p.wanted.tp, p.cluster.joined
    return tp is None or tp <= 1 or p.cluster.one_domain or node % tp == 0


def _explain_node(p: Proposal) -> Explanation:
    tp, node = p.wanted.tp or 1, p.cluster.joined
    inside = [d for d in range(1, node + 1) if node % d == 0 and p.arch.heads % d == 0 and p.arch.kv_heads % d == 0]
    slow, fast = p.cluster.inter.bytes_per_s.value / 1e9, p.cluster.intra.bytes_per_s.value / 1e9
    return Explanation(
        f"tensor groups of {tp} reach across nodes of {node}: their all-reduce, twice a layer and direction, then runs "
        f"at {slow:.0f} GB/s instead of {fast:.0f} GB/s",
        (f"{spelled(p, 'layout.tp')} = {', '.join(map(str, inside))}",),
    )


def _without_pipeline(p: Proposal) -> Shares | None:
    """The same devices with pp = 1, when that fits with ZeRO-1 at most and there is a bubble to save."""
    now = shares_of(p)
    if now is None or now.pp == 1 or now.zero > 1 or (not _few(p) and (_idle(p) or 0.0) < WORTH):
        return None
    return _fitting(p, replace(now, dp=p.cluster.gpus // (now.tp * now.cp), pp=1, micro_batch=1, micro_batches=1))


def _without_tensor(p: Proposal) -> Shares | None:
    """The same devices with tp = 1, when that fits with ZeRO-1 at most."""
    now = shares_of(p)
    if now is None or now.tp == 1 or now.zero > 1:
        return None
    return _fitting(p, replace(now, dp=p.cluster.gpus // (now.pp * now.cp), tp=1, sp=False, micro_batch=1))


def _fitting(p: Proposal, of: Shares) -> Shares | None:
    if p.arch.experts or of.dp < 1 or p.global_batch % of.dp:
        return None
    again = (of.recompute,) if p.wanted.recompute is not None else RECOMPUTE
    tried = (replace(of, zero=zero, recompute=recompute) for recompute in again for zero in sorted({of.zero, 1}))
    return next((shares for shares in tried if comfortable(p, shares)), None)


def _fits_text(p: Proposal, of: Shares) -> str:
    means = [f"ZeRO-{of.zero}"] if of.zero else []
    means += [f"recompute {of.recompute}"] if of.recompute != "none" else []
    means += ["micro_batch 1"]
    return f"about {gib(need(p, of))} of a device's {gib(p.cluster.memory_bytes)} ({', '.join(means)})"


def _pipeline_needed(p: Proposal) -> bool:
    return _without_pipeline(p) is None


def _explain_pipeline(p: Proposal) -> Explanation:
    of = _without_pipeline(p)
    assert of is not None
    rest = f"dp {of.dp}" + (f" · tp {of.tp}" if of.tp > 1 else "")
    return Explanation(
        f"memory does not ask for a pipeline: {rest} needs {_fits_text(p, of)}, and has no bubble",
        (f"pp = 1, {rest}" + (f", zero = {of.zero}" if of.zero else ""),),
    )


def _tensor_needed(p: Proposal) -> bool:
    return _without_tensor(p) is None


def _explain_tensor(p: Proposal) -> Explanation:
    of = _without_tensor(p)
    assert of is not None
    rest = f"dp {of.dp}" + (f" · pp {of.pp}" if of.pp > 1 else "")
    return Explanation(
        f"memory does not ask for tensor parallelism: {rest} needs {_fits_text(p, of)}, and exchanges no activations "
        f"inside the layers",
        (f"tp = 1, {rest}" + (f", zero = {of.zero}" if of.zero else ""),),
    )


def _sharding_needed(p: Proposal) -> bool:
    now = shares_of(p)
    return now is None or now.zero != 3 or now.dp == 1 or not comfortable(p, replace(now, zero=0))


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:{'.0f' if n_bytes >= 1e9 else '.2g'}} GB"


def _explain_sharding(p: Proposal) -> Explanation:
    now = shares_of(p)
    assert now is not None
    m, shards = micro_batches_of(p) or 1, now.dp * now.cp
    held = parameters(p.arch, now.tp, now.ep, now.etp) / now.pp
    recipe = state_bytes(p.training)
    moved = m * held * (2 * recipe.weight + recipe.gradient) * (shards - 1) / shards
    plain = 2 * held * recipe.gradient * (shards - 1) / shards
    return Explanation(
        f"ZeRO-3 buys memory that is not needed: unsharded, a rank needs about {gib(need(p, replace(now, zero=0)))} of "
        f"{gib(p.cluster.memory_bytes)}. Weights are gathered twice and gradients reduced once in each of "
        f"{count(m, 'micro-batch')}: {_gb(moved)} a step and device, against {_gb(plain)} for one "
        f"exchange of gradients",
        (f"{spelled(p, 'layout.zero')} = 0 or 1",),
    )


def _recompute_needed(p: Proposal) -> bool:
    now = shares_of(p)
    if now is None or now.recompute != "full" or p.wanted.micro_batch is None:
        return True
    return not comfortable(p, replace(now, recompute="none"))


def _explain_recompute(p: Proposal) -> Explanation:
    now = shares_of(p)
    assert now is not None
    without = replace(now, recompute="none")
    return Explanation(
        f"full recompute repeats each forward (a third more work) and is not needed: without it a rank needs about "
        f"{gib(need(p, without))} of {gib(p.cluster.memory_bytes)} ({COMFORT:.0%} is taken as the limit)",
        (f"{spelled(p, 'layout.recompute')} = none",),
    )


def _offload_needed(p: Proposal) -> bool:
    now, offload = shares_of(p), p.wanted.offload
    if now is None or offload in (None, "none") or p.cluster.device.kind == "cpu":
        return True
    return p.wanted.micro_batch is None or not comfortable(p, now)


def _explain_offload(p: Proposal) -> Explanation:
    now = shares_of(p)
    assert now is not None
    return Explanation(
        f"states travel to CPU memory and back in every step and need not: with them on the device a rank needs about "
        f"{gib(need(p, now))} of {gib(p.cluster.memory_bytes)} ({COMFORT:.0%} is taken as the limit)",
        (f"{spelled(p, 'layout.offload')} = none",),
    )


_PIPELINE_FIELDS = ("batch.micro_batches", "batch.micro_batch", "layout.pp", "layout.schedule")

WASTE_RULES: tuple[Rule, ...] = (
    Rule("few-micro-batches", "warning", _PIPELINE_FIELDS, _few_hold, _explain_few),
    Rule("bubble", "warning", _PIPELINE_FIELDS, _bubble_holds, _explain_bubble),
    Rule("tensor-across-nodes", "warning", ("layout.tp", "cluster.gpus_per_node"), _node_holds, _explain_node),
    Rule("needless-pipeline", "warning", ("layout.pp",), _pipeline_needed, _explain_pipeline),
    Rule("needless-tensor", "warning", ("layout.tp",), _tensor_needed, _explain_tensor),
    Rule("needless-sharding", "warning", ("layout.zero",), _sharding_needed, _explain_sharding),
    Rule("needless-recompute", "warning", ("layout.recompute",), _recompute_needed, _explain_recompute),
    Rule("needless-offload", "warning", ("layout.offload",), _offload_needed, _explain_offload),
)  # fmt: skip
