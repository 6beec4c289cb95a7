"""For each kind of waste the layouts that would avoid it, the nearest first: one has to be faster before a warning is
worth a word."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from meshwright.layout.batch import divisors
from meshwright.layout.given import settled
from meshwright.layout.proposal import Proposal, Wanted

Alternatives = Callable[[Proposal], Iterator[Wanted]]


def _free(wanted: Wanted, **changes: object) -> Wanted:
    """With other values, and whatever follows from them open: batch, recompute, stages and chunks."""
    open_parts = dict.fromkeys(
        ("micro_batch", "micro_batches", "recompute", "recompute_layers", "stages", "placement", "vpp", "schedule")
    )
    return replace(wanted, **{**open_parts, **changes})  # type: ignore[arg-type]


def _no_pipeline(p: Proposal) -> Iterator[Wanted]:
    w = settled(p).wanted
    for zero in sorted({w.zero or 0, 1}):
        yield _free(w, pp=1, dp=p.cluster.gpus // ((w.tp or 1) * (w.cp or 1)), zero=zero)


def _no_tensor(p: Proposal) -> Iterator[Wanted]:
    w = settled(p).wanted
    etp = None if p.arch.experts else 1
    for zero in sorted({w.zero or 0, 1}):
        yield _free(w, tp=1, sp=False, etp=etp, dp=p.cluster.gpus // ((w.pp or 1) * (w.cp or 1)), zero=zero)


def _inside_a_node(p: Proposal) -> Iterator[Wanted]:
    """Smaller tensor groups on as many pipeline ranks as before, or on as many more as keeps the model as divided."""
    w, node = settled(p).wanted, p.cluster.joined
    for tp in reversed(divisors(node)):
        if w.tp is None or w.tp % tp or p.arch.heads % tp or p.arch.kv_heads % tp:
            continue
        for pp in sorted({w.pp or 1, (w.pp or 1) * w.tp // tp}):
            yield _free(w, tp=tp, pp=pp, dp=p.cluster.gpus // (tp * pp * (w.cp or 1)), zero=None, etp=None)


def _other_batch(p: Proposal) -> Iterator[Wanted]:
    """The same degrees with any micro-batch and schedule, then with half the stages."""
    w = settled(p).wanted
    yield _free(w)
    if w.pp is not None and w.pp % 2 == 0 and w.dp is not None:
        yield _free(w, pp=w.pp // 2, dp=2 * w.dp)
        yield _free(w, pp=w.pp // 2, dp=2 * w.dp, zero=1)


def _less_sharding(p: Proposal) -> Iterator[Wanted]:
    w = settled(p).wanted
    for zero in (0, 1):
        yield replace(w, zero=zero, shard_group=None, offload=None)


def _with(**changes: object) -> Alternatives:
    def changed(p: Proposal) -> Iterator[Wanted]:
        yield replace(settled(p).wanted, **changes)  # type: ignore[arg-type]

    return changed


ALTERNATIVES: Mapping[str, Alternatives] = {
    "few-micro-batches": _other_batch,
    "bubble": _other_batch,
    "tensor-across-nodes": _inside_a_node,
    "needless-pipeline": _no_pipeline,
    "needless-tensor": _no_tensor,
    "needless-sharding": _less_sharding,
    "needless-recompute": _with(recompute="none", recompute_layers=None),
    "needless-offload": _with(offload="none"),
    "uneven-stages": _with(stages=None),
    "nothing-to-shard": _with(zero=0),
}
"""By rule. A rule that is not here states a fact, or a price in memory that no faster layout refutes."""
