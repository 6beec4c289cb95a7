"""Legal layouts next to what was asked, for the predictor to put a figure on each."""

from collections.abc import Iterator
from dataclasses import replace
from math import log2

from meshwright.layout.batch import divisors
from meshwright.layout.given import DEGREES, asked_degrees, settled, with_degrees
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules import legal
from meshwright.layout.schedules import micro_batch_rule
from meshwright.layout.worlds import Degrees, nearest_worlds


def _batches(p: Proposal, dp: int, pp: int, vpp: int) -> Iterator[tuple[int, int]]:
    """(micro_batch, micro_batches) that satisfy the equation: the asked micro-batch, and the asked count."""
    w = p.wanted
    each, over = divmod(p.global_batch, dp)
    if over:
        return
    if w.micro_batch is None and w.micro_batches is None:
        return
    choices = [(b, each // b) for b in divisors(each)]
    if w.schedule is not None:
        choices = [(b, m) for b, m in choices if micro_batch_rule(w.schedule, pp, vpp, m) is None]
    if not choices:
        return
    if w.micro_batch is not None:
        asked = w.micro_batch
        yield min(choices, key=lambda choice: (abs(log2(choice[0] / asked)), choice[0]))
    if w.micro_batches is not None:
        count = w.micro_batches
        yield min(choices, key=lambda choice: (abs(log2(choice[1] / count)), choice[0]))


def _fitted(p: Proposal, world: Degrees) -> list[Proposal]:
    """The proposal on those degrees, with each batch that is near; stages are dropped where the pipeline changes."""
    wanted = with_degrees(p.wanted, world)
    if world["pp"] != p.wanted.pp:
        wanted = replace(wanted, stages=None, placement=None)
    batches = dict.fromkeys(_batches(p, world["dp"], world["pp"], p.wanted.vpp or 1))
    if p.wanted.micro_batch is None and p.wanted.micro_batches is None:
        return [replace(p, wanted=wanted)]
    return [replace(p, wanted=replace(wanted, micro_batch=b, micro_batches=m)) for b, m in batches]


def neighbours(proposal: Proposal, most: int = 6) -> tuple[Wanted, ...]:
    """Legal choices of degrees and batch next to what was asked, nearest first; each passes `legal`. Only dp, tp, pp,
    cp, micro_batch and micro_batches differ from the proposal; stages and placement go where the pipeline changes.
    Degrees that are legal already stay, so a proposal that is legal altogether comes back with its gaps filled."""
    p = settled(proposal)
    degrees = asked_degrees(p)
    kept = [near.wanted for near in (_fitted(p, degrees) if len(degrees) == len(DEGREES) else []) if legal(near)]
    if kept:
        return tuple(kept[:most])
    fitted = [near for world in nearest_worlds(proposal) for near in _fitted(p, world)]
    return tuple(near.wanted for near in fitted if legal(near))[:most]


def plain(proposal: Proposal, zero: int = 1) -> Wanted:
    """The plainest layout on the same devices: data parallel only, ZeRO stage `zero`, everything else free. What a
    layout with more axes has to beat."""
    return Wanted(
        dp=proposal.cluster.gpus, tp=1, pp=1, cp=1, ep=1, vpp=1, zero=zero, recompute=proposal.wanted.recompute
    )  # fmt: skip
