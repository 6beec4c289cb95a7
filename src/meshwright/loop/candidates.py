"""What the loop could change next, each change predicted from the same measured unit times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.basics.errors import AnswerIsNo, InputError
from meshwright.files.findings import Finding
from meshwright.files.patch import apply, difference
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Wanted, proposal_of
from meshwright.layout.rules import legal
from meshwright.loop.rebalance import rebalanced
from meshwright.planner.rank import plan as rank_plans
from meshwright.predictor.step import predict


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change, the plan it leads to (with its prediction), and the share of the step it is predicted to save."""

    change: Mapping[str, object]
    plan: Plan
    reason: str
    predicted_gain: float


def may_change(asked: Setup, change: Mapping[str, object]) -> bool:
    """True when every key is free in the job as asked, or named in its `[tune] change`."""
    allowed = set(asked.tune.change)
    wanted = asked.proposal.wanted
    names = [key.split(".", 1)[1] for key in change]
    return all(name in allowed or getattr(wanted, name) is None for name in names)


def _freed(asked: Setup, current: Plan) -> Setup:
    """The current plan's setup with the keys that tune may change left open."""
    fixed = proposal_of(asked.proposal, current.layout, current.batch)
    open_keys = {key for key in asked.tune.change if key in Wanted.__slots__}
    if "micro_batch" in open_keys:
        open_keys.add("micro_batches")
    wanted = replace(fixed.wanted, **dict.fromkeys(open_keys))
    return replace(asked, proposal=replace(fixed, wanted=wanted))


_TOGETHER = (
    ("layout.recompute", "layout.recompute_layers"),
    ("layout.schedule", "layout.vpp", "layout.stages", "layout.placement"),
)
"""Keys that only make sense together: one change to people."""


def single_changes(change: Mapping[str, object]) -> tuple[dict[str, object], ...]:
    """A patch cut into changes that can be made, measured and undone one at a time."""
    rest, parts = dict(change), []
    for keys in _TOGETHER:
        if part := {key: rest.pop(key) for key in keys if key in rest}:
            parts.append(part)
    return (*parts, *({key: value} for key, value in rest.items()))


def candidates(
    asked: Setup, current: Plan, measured: MeasuredUnits, findings: Sequence[Finding]
) -> tuple[Candidate, ...]:
    """Every allowed change, best predicted gain first: the diagnosis' own, a rebalancing, and the planner's choices.

    Each changes one thing, so that the next run shows what that one thing was worth.
    `asked` is the job as the user wrote it. Changes that break a rule or do not fit in memory are left out.
    """
    base = predict(current, measured).step_time_s
    proposals: list[tuple[str, Mapping[str, object]]] = [
        (finding.cause, finding.change) for finding in findings if finding.change
    ]
    if len(current.layout.stages) > 1:
        balanced = rebalanced(current, measured)
        proposals.append(("stages balanced by the measured unit times", difference(current, balanced.after)))
    if asked.tune.change:
        try:
            best = rank_plans(_freed(asked, current), top=1, measured=measured).plans[0]
            reason = "the planner's choice with the measured unit times"
            proposals += [(reason, part) for part in single_changes(difference(current, best))]
        except (AnswerIsNo, IndexError):
            pass  # nothing else fits: the planner has no proposal of its own
    found: list[Candidate] = []
    for reason, change in proposals:
        if not change or not may_change(asked, change):
            continue
        try:
            after = apply(current, change)
        except InputError:
            continue
        if not legal(after.setup.proposal):
            continue
        prediction = predict(after, measured)
        if prediction.fits and all(change != earlier.change for earlier in found):
            gain = 1 - prediction.step_time_s / base
            found.append(Candidate(change, replace(after, prediction=prediction), reason, gain))
    return tuple(sorted(found, key=lambda candidate: -candidate.predicted_gain))
