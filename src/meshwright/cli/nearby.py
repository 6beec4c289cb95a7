"""Legal layouts next to what was asked, and the plainest one on the same devices, each predicted: by how much."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from meshwright.basics.errors import AnswerIsNo
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.neighbours import neighbours, plain
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import Wanted

Kind = Literal["neighbour", "plain"]

_CALLS_FOR = frozenset((
    "world-size", "batch-equation", "batch-fills-replicas", "heads-divide", "kv-heads-divide", "ffn-divides",
    "needless-pipeline", "needless-tensor", "needless-sharding", "claim-model-too-large",
))  # fmt: skip


def _usual(setup: Setup, wanted: Wanted) -> Wanted:
    """With the usual choice wherever degrees and batch leave something open, so that neighbours compare."""
    dense = not setup.proposal.arch.experts
    return replace(
        wanted, schedule=wanted.schedule or "1f1b", zero=wanted.zero or 0, sp=bool(wanted.sp), vpp=wanted.vpp or 1,
        ep=1 if dense else wanted.ep, etp=wanted.tp if dense else wanted.etp,
    )  # fmt: skip


def _asked(setup: Setup) -> Iterator[tuple[Kind, Wanted]]:
    for near in neighbours(setup.proposal):
        yield "neighbour", _usual(setup, near)
    for zero in (0, 1):
        yield "plain", replace(plain(setup.proposal, zero), recompute=None)


def nearby(setup: Setup, problems: Sequence[Problem]) -> tuple[tuple[Kind, Plan], ...]:
    """The best plan of each neighbouring choice of degrees and batch, then of plain data parallelism with ZeRO-0 and
    ZeRO-1, whose micro-batch and recompute are chosen. Empty when no problem asks for another layout; what does not
    fit in memory is left out."""
    if not _CALLS_FOR & {problem.rule for problem in problems}:
        return ()
    from meshwright.planner.rank import plan as rank

    found: list[tuple[Kind, Plan]] = []
    for kind, wanted in _asked(setup):
        proposal = replace(setup.proposal, wanted=wanted)
        try:
            best = rank(replace(setup, proposal=proposal, runnable_by="any"), top=1).plans[0]
        except AnswerIsNo:
            continue
        found.append((kind, best))
    return tuple(found)
