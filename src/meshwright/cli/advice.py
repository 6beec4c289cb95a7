"""Short answers in words that are computed, not canned: what a step is made of, and what would take less memory."""

from collections.abc import Iterator, Mapping

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import gib
from meshwright.files.convert import prediction_of
from meshwright.files.patch import apply
from meshwright.files.plan import Plan
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import legal
from meshwright.predictor.memory import rank_memory

_MOST = 4  # a longer list helps nobody


def breakdown(plan: Plan) -> str:
    """The terms of the step time above one percent, the largest first: `compute 71 %, bubble 18 %`."""
    found = prediction_of(plan)
    shares = {name: seconds / found.step_time_s for name, seconds in found.terms.items()}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in ordered if share >= 0.01)


def _smaller(plan: Plan) -> Iterator[Mapping[str, object]]:
    """Changes that may take less memory."""
    if plan.layout.recompute != "full":
        yield {"layout.recompute": "full"}
    if plan.layout.dp > 1:
        yield from ({"layout.zero": stage} for stage in range(plan.layout.zero + 1, 4))
    if plan.batch.micro_batch > 1 and plan.batch.micro_batch % 2 == 0:
        yield {"batch.micro_batch": plan.batch.micro_batch // 2}
    if plan.layout.tp > 1 and not plan.layout.sp:
        yield {"layout.sp": True}


def memory_advice(plan: Plan) -> list[str]:
    """Legal single changes that take at least 5 % less memory on the fullest pipeline rank, the best first."""
    now = prediction_of(plan).worst_memory.total
    found: list[tuple[int, str]] = []
    for change in _smaller(plan):
        try:
            changed = apply(plan, change)
        except InputError:
            continue
        if not legal(proposal_of(changed.setup.proposal, changed.layout, changed.batch)):
            continue
        worst = max(rank.total for rank in rank_memory(changed.setup, changed.layout, changed.batch))
        if worst < now:
            (key, value), *_ = change.items()
            saved = f"{gib(worst)} instead of {gib(now)} on the fullest rank (predicted)"
            found.append((worst, f"{key} = {str(value).lower()}: {saved}"))
    worthwhile = sorted(entry for entry in found if entry[0] <= 0.95 * now)
    return [text for _, text in worthwhile[:_MOST]]
