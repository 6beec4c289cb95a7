"""Warnings about settings that change nothing: written down, and without effect where they stand."""

from collections.abc import Callable

from meshwright.layout.given import chunks_of, settled
from meshwright.layout.problem import Explanation, Rule, spelled
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules_sharding import replicas_of
from meshwright.model.training import Training


def _most_layers(p: Proposal) -> int | None:
    """Layers of the stage that holds most of them; None while the number of stages is open."""
    w = settled(p).wanted
    if w.stages is not None:
        return max((len({u.split(".")[1] for u in stage if u.startswith("layers.")}) for stage in w.stages), default=0)
    return None if w.pp is None else -(-p.arch.layers // (w.pp * chunks_of(p)))


def _sequence_parallel(p: Proposal) -> str | None:
    alone = p.wanted.sp is True and p.wanted.tp == 1
    return "sequence parallelism divides a tensor group's tokens, and tp = 1 is no group" if alone else None


def _expert_tensor(p: Proposal) -> str | None:
    w = p.wanted
    if p.arch.experts or w.etp is None or w.etp in (1, w.tp):
        return None
    return f"{p.arch.name} has no experts for a tensor degree of {w.etp}"


def _shard_group(p: Proposal) -> str | None:
    whole = p.wanted.shard_group is None or p.wanted.shard_group in (1, replicas_of(p))
    return None if whole or p.wanted.zero != 0 else "shard groups share ZeRO's shards, and zero = 0 shards nothing"


def _first_layers(p: Proposal) -> str | None:
    k, most = p.wanted.recompute_layers, _most_layers(p)
    if k is None or most is None or k < most:
        return None
    return f"no stage has more than {most} layers: full recompute for the first {k} is full recompute for all"


def _adapters(p: Proposal) -> str | None:
    usual = Training()
    changed = [key for key in ("lora_rank", "lora_targets") if getattr(p.training, key) != getattr(usual, key)]
    if p.training.task == "lora" or not changed:
        return None
    return (
        f"task = {p.training.task} trains the whole model, and {' and '.join(changed)} describe adapters (task = lora)"
    )


def _exchange(p: Proposal) -> str | None:
    alone = p.wanted.gradient_exchange is not None and replicas_of(p) == 1
    return "there is one replica, which exchanges gradients with nobody" if alone else None


def _rule(name: str, fields: tuple[str, ...], idle: Callable[[Proposal], str | None]) -> Rule:
    """A rule that holds while `idle` has no reason to give; the first field is the one without effect."""

    def explain(p: Proposal) -> Explanation:
        return Explanation(f"{spelled(p, fields[0])} has no effect: {idle(p)}", (f"leave out {spelled(p, fields[0])}",))

    return Rule(name, "warning", fields, lambda p: idle(p) is None, explain)


EFFECT_RULES: tuple[Rule, ...] = (
    _rule("sequence-parallel-alone", ("layout.sp", "layout.tp"), _sequence_parallel),
    _rule("expert-tensor-without-experts", ("layout.etp", "model.experts"), _expert_tensor),
    _rule("shard-group-unsharded", ("layout.shard_group", "layout.zero"), _shard_group),
    _rule("recompute-all-layers", ("layout.recompute_layers", "layout.pp", "model.layers"), _first_layers),
    _rule("adapters-unused", ("training.lora_rank", "training.lora_targets", "training.task"), _adapters),
    _rule("exchange-with-nobody", ("layout.gradient_exchange", "layout.dp"), _exchange),
)
