"""Degrees that fill the cluster and divide the model, nearest to the ones asked for."""

from collections.abc import Iterator
from math import log2

from meshwright.layout import predicates
from meshwright.layout.batch import divisors
from meshwright.layout.given import DEGREES, asked_degrees
from meshwright.layout.proposal import Proposal

Degrees = dict[str, int]


def _worlds(p: Proposal) -> Iterator[Degrees]:
    """Every dp, tp, pp, cp whose product is the number of devices and which the model can be cut by."""
    gpus = p.cluster.gpus
    for tp in divisors(gpus):
        if not predicates.heads_split(p.arch.heads, p.arch.kv_heads, tp) or p.arch.ffn_hidden % tp:
            continue
        for pp in divisors(gpus // tp):
            for cp in divisors(gpus // (tp * pp)):
                yield {"dp": gpus // (tp * pp * cp), "tp": tp, "pp": pp, "cp": cp}


def nearest_worlds(p: Proposal, most: int = 3) -> tuple[Degrees, ...]:
    """Legal degrees that keep most of the asked ones: the fewest halvings and doublings, then the fewest degrees
    changed. Free degrees count as 1, except that a free data degree takes whatever is left at no cost."""
    asked = asked_degrees(p)

    def distance(near: Degrees) -> tuple[float, int]:
        moved = [abs(log2(near[name] / asked.get(name, 1))) for name in DEGREES if name in asked or name != "dp"]
        return sum(moved), sum(move > 0 for move in moved)

    ranked = sorted(_worlds(p), key=lambda near: (*distance(near), -near["pp"], -near["tp"]))
    best = distance(ranked[0])[0] if ranked else 0.0
    return tuple(near for near in ranked if distance(near)[0] <= best + 1e-9)[:most]
