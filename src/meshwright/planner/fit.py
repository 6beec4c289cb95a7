"""The largest micro-batch, sequence and model that fit under a plan's layout: `meshwright memory PLAN --fit`.

Memory never falls when one of them grows, so each answer is found by doubling and halving. Every figure is predicted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import Literal

from meshwright.files.plan import Plan
from meshwright.layout.batch import micro_batch_choices, solve
from meshwright.layout.partition import even_stages
from meshwright.layout.predicates import sequence_multiple
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import legal
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import total_parameters
from meshwright.planner.relief import Held, held

Safety = Literal["fits", "tight"]
"""How sure: "fits" keeps the probability of running out below the threshold of tight, "tight" below that of not
fitting."""

_MOST = 2**24
_ALLOWED: dict[Safety, tuple[str, ...]] = {"fits": ("fits",), "tight": ("fits", "tight")}


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest `value` of one kind that fits (None: not even the smallest does), with what it needs; `beyond` is
    the next larger one and what that would need (None: nothing larger is legal)."""

    what: str  # "micro_batch", "micro_batch of any global batch", "seq_len", "layers", "hidden"
    safety: Safety
    now: int
    value: int | None
    held: Held | None
    beyond: int | None
    beyond_held: Held | None
    parameters: int | None = None  # of the model, where it is the model that grows


Make = Callable[[int], Plan | None]


def largest(plan: Plan) -> tuple[Largest, ...]:
    """Every answer, for both safeties: micro-batches that satisfy the batch equation, any micro-batch at the plan's
    number of micro-batches, sequences, layers at the model's width, widths at its ratios and depth."""
    return tuple(
        answer for kind in (_micro_batches, _any_micro_batch, _sequences, _layers, _widths) for answer in kind(plan)
    )


def _micro_batches(plan: Plan) -> list[Largest]:
    sizes = micro_batch_choices(plan.batch.global_batch, plan.layout.dp)

    def made(index: int) -> Plan | None:
        return None if index > len(sizes) else _with_micro_batch(plan, sizes[index - 1], plan.batch.global_batch)

    def size(index: int) -> int:
        return sizes[index - 1]

    return _answers(plan, "micro_batch", plan.batch.micro_batch, made, size, most=len(sizes), every=True)


def _any_micro_batch(plan: Plan) -> list[Largest]:
    layout, count = plan.layout, plan.batch.micro_batches

    def made(size: int) -> Plan | None:
        return _with_micro_batch(plan, size, size * count * layout.dp)

    return _answers(plan, "micro_batch of any global batch", plan.batch.micro_batch, made, int)


def _with_micro_batch(plan: Plan, size: int, global_batch: int) -> Plan | None:
    batch = solve(global_batch, plan.batch.seq_len, plan.layout.dp, size)
    if batch is None:
        return None
    proposal = proposal_of(replace(plan.setup.proposal, global_batch=global_batch), plan.layout, batch)
    return Plan(replace(plan.setup, proposal=proposal), plan.layout, batch) if legal(proposal) else None


def _sequences(plan: Plan) -> list[Largest]:
    layout, arch = plan.layout, plan.setup.proposal.arch
    step = sequence_multiple(layout.tp, layout.cp, layout.sp)
    most = arch.max_positions if arch.positions == "learned" and arch.max_positions else _MOST

    def made(number: int) -> Plan | None:
        batch = replace(plan.batch, seq_len=number * step)
        proposal = proposal_of(replace(plan.setup.proposal, seq_len=number * step), layout, batch)
        return Plan(replace(plan.setup, proposal=proposal), layout, batch) if number * step <= most else None

    return _answers(plan, "seq_len", plan.batch.seq_len, made, lambda number: number * step)


def _layers(plan: Plan) -> list[Largest]:
    """Layers spread evenly over the plan's stages."""
    arch, stages = plan.setup.proposal.arch, len(plan.layout.stages)

    def made(layers: int) -> Plan | None:
        return _with_arch(plan, replace(arch, layers=layers)) if layers >= stages else None

    return _answers(plan, "layers", arch.layers, made, int, least=stages)


def _widths(plan: Plan) -> list[Largest]:
    """Heads, feed-forward width and hidden size in the model's proportions; whole heads on every tensor rank."""
    arch, tp = plan.setup.proposal.arch, plan.layout.tp
    parts = gcd(arch.heads, arch.kv_heads)
    step = lcm(*(tp // gcd(tp, heads // parts) for heads in (arch.heads, arch.kv_heads)))

    def made(number: int) -> Plan | None:
        return _with_arch(plan, _wider(arch, number * step, parts, lcm(tp, plan.layout.etp)))

    return _answers(plan, "hidden", arch.hidden, made, lambda number: _scaled(arch.hidden, number * step, parts, 1))


def _scaled(size: int, times: int, over: int, multiple: int) -> int:
    """`size * times / over`, rounded up to a multiple."""
    return -(-size * times // (over * multiple)) * multiple


def _wider(arch: Architecture, times: int, over: int, multiple: int) -> Architecture:
    def wide(size: int) -> int:
        return _scaled(size, times, over, multiple)

    return replace(
        arch, hidden=_scaled(arch.hidden, times, over, 1), heads=arch.heads // over * times,
        kv_heads=arch.kv_heads // over * times, ffn_hidden=wide(arch.ffn_hidden),
        shared_ffn_hidden=wide(arch.shared_ffn_hidden), dense_ffn_hidden=wide(arch.dense_ffn_hidden),
    )  # fmt: skip


def _with_arch(plan: Plan, arch: Architecture) -> Plan:
    layout = replace(plan.layout, stages=even_stages(arch, len(plan.layout.stages)))
    if arch.layers == plan.setup.proposal.arch.layers:
        layout = plan.layout
    proposal = proposal_of(replace(plan.setup.proposal, arch=arch), layout, plan.batch)
    return Plan(replace(plan.setup, proposal=proposal), layout, plan.batch)


def _answers(
    plan: Plan,
    what: str,
    now: int,
    made: Make,
    size: Callable[[int], int],
    *,
    least: int = 1,
    most: int = _MOST,
    every: bool = False,
) -> list[Largest]:
    """`every`: the candidates are few and need not grow in memory one after the other; the largest that fits wins."""
    known: dict[int, tuple[Plan, Held] | None] = {}

    def needs(number: int) -> tuple[Plan, Held] | None:
        if number not in known:
            found = made(number) if least <= number <= most else None
            known[number] = None if found is None else (found, held(found))
        return known[number]

    def fits(number: int, safety: Safety) -> bool:
        found = needs(number)
        return found is not None and found[1].verdict in _ALLOWED[safety]

    answers = []
    for safety in _ALLOWED:
        if every:
            best = max((number for number in range(least, most + 1) if fits(number, safety)), default=None)
        else:
            best = _bisected(lambda number, safety=safety: fits(number, safety), least, most)  # type: ignore[misc]
        found = None if best is None else needs(best)
        after = next((n for n in range((best or least - 1) + 1, most + 1) if not every or needs(n)), None)
        beyond = None if after is None else needs(after)
        arch = None if found is None else found[0].setup.proposal.arch
        grown = (arch is not None and arch != plan.setup.proposal.arch) or what in ("layers", "hidden")
        answers.append(
            Largest(
                what,
                safety,
                now,
                None if best is None else size(best),
                None if found is None else found[1],
                None if after is None or beyond is None else size(after),
                None if beyond is None else beyond[1],
                total_parameters(arch) if grown and arch is not None else None,
            )
        )
    return answers


def _bisected(fits: Callable[[int], bool], least: int, most: int) -> int | None:
    """The largest number that fits, where all smaller ones do as well."""
    if not fits(least):
        return None
    low, high = least, least * 2
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
