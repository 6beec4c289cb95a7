"""What single change would make a plan fit, and by how much; the best pair where no single one is enough."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory, Verdict, verdict
from meshwright.layout.runners import runnable_by
from meshwright.planner.changes import Change, combined, single_changes
from meshwright.predictor.memory import rank_memory
from meshwright.predictor.step import predict

_ORDER: tuple[Verdict, ...] = ("fits", "tight", "does not fit")
_WORTH = 0.01  # of the fullest rank: changes that save less are left out
_PAIRED = 8  # single changes that are tried in pairs
_UNASKED = 5  # changes that are listed where the plan fits
_TIMED = 3  # pairs whose step time is predicted
_UNTIMED = ("offload",)  # families whose cost in step time the predictor does not know
_DOMINATED = 0.25  # from this share of a rank on, its logits are what to shrink first


@dataclass(frozen=True, slots=True)
class Held:
    """What a plan needs: bytes and probability on the fullest rank, its limit, and the worst verdict of all ranks."""

    fullest: StageMemory
    limit: int
    p_oom: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Relief:
    """A change with what it makes of the fullest rank. `step_time` is the share by which a step gets longer; None
    where it was not predicted. `runners` can run the plan after it."""

    change: Change
    before: Held
    after: Held
    runners: tuple[str, ...]
    wanted_runner: bool  # the framework that the job names is among them, or does not run the plan as it stands either
    before_runs: bool  # some framework runs the plan as it stands
    step_time: float | None = None

    @property
    def saved(self) -> int:
        """Bytes less on the fullest rank."""
        return self.before.fullest.total - self.after.fullest.total


def held(plan: Plan) -> Held:
    """What the plan needs, predicted."""
    ranks = rank_memory(plan.setup, plan.layout, plan.batch)
    limit = plan.setup.proposal.cluster.memory_bytes
    fullest = max(ranks, key=lambda rank: rank.total)
    chances = [rank.p_oom for rank in ranks if rank.p_oom is not None]
    worst = max((verdict(rank, limit) for rank in ranks), key=_ORDER.index)
    return Held(fullest, limit if fullest.limit is None else fullest.limit, max(chances, default=None), worst)


def reliefs(plan: Plan, most: int = 8) -> tuple[Relief, ...]:
    """The best single changes first: those after which the plan fits by what they cost in step time, then those after
    which it is tight, then by bytes. Where none is enough the best pair of changes stands before them."""
    now = held(plan)
    found = [one for one in (_relief(plan, now, change) for change in single_changes(plan)) if _worthwhile(one)]
    if now.verdict == "fits":  # nothing is asked for: what saves most
        strongest = sorted(_strongest(found).values(), key=lambda one: one.after.fullest.total)
        return tuple(_timed(one, plan) for one in strongest[:_UNASKED])
    mildest = list(_mildest(found))
    ordered = sorted(mildest, key=_key)[: most + 2]
    timed = [_timed(one, plan) for one in ordered]
    singles = _loss_before_stages(now, sorted(timed, key=_key))[:most]
    if now.verdict == "does not fit" and all(one.after.verdict == "does not fit" for one in mildest):
        return (*_best_pair(plan, now, found), *singles)
    return tuple(singles)


def _relief(plan: Plan, now: Held, change: Change) -> Relief:
    setup = plan.setup

    def runners(of: Plan) -> tuple[str, ...]:
        return runnable_by(of.setup.proposal.arch, of.setup.proposal.training, of.layout)

    before, after = runners(plan), runners(change.plan)
    asked = setup.runnable_by == "any" or setup.runnable_by in after or setup.runnable_by not in before
    return Relief(change, now, held(change.plan), after, asked, bool(before))


def _worthwhile(one: Relief) -> bool:
    if not one.runners and one.before_runs:
        return False  # nobody could run it
    better = _ORDER.index(one.after.verdict) < _ORDER.index(one.before.verdict)
    return one.saved > 0 and (better or one.saved >= _WORTH * one.before.fullest.total)


def _strongest(found: Iterable[Relief]) -> dict[str, Relief]:
    """Of each family the change that saves most."""
    by_family: dict[str, Relief] = {}
    for one in found:
        if one.change.family not in by_family or one.saved > by_family[one.change.family].saved:
            by_family[one.change.family] = one
    return by_family


def _mildest(found: Sequence[Relief]) -> Iterable[Relief]:
    """Of each family the first change that reaches each verdict; where none fits, the one that saves most."""
    for family in dict.fromkeys(one.change.family for one in found):
        own = [one for one in found if one.change.family == family]
        for reached in ("fits", "tight"):
            first = next((one for one in own if one.after.verdict == reached and one.wanted_runner), None)
            first = first or next((one for one in own if one.after.verdict == reached), None)
            if first is not None:
                yield first
        if all(one.after.verdict == "does not fit" for one in own):
            yield max(own, key=lambda one: one.saved)


def _key(one: Relief) -> tuple[float, ...]:
    """Smaller is better."""
    reached = _ORDER.index(one.after.verdict)
    cost = inf if one.step_time is None else round(one.step_time, 3)
    return (reached, not one.wanted_runner, 0.0 if reached == 2 else cost, one.after.fullest.total)


def _timed(one: Relief, plan: Plan) -> Relief:
    before = plan.prediction.step_time_s if plan.prediction is not None else predict(plan).step_time_s
    if any(family in one.change.family for family in _UNTIMED):
        return one
    step = predict(one.change.plan).step_time_s / before - 1
    return replace(one, step_time=step)


def _loss_before_stages(now: Held, ordered: list[Relief]) -> list[Relief]:
    """Where logits dominate the fullest rank, what shrinks them comes before what only spreads layers thinner."""
    logits = now.fullest.parts.get("logits", 0)
    if logits < _DOMINATED * now.fullest.total:
        return ordered
    loss = [one for one in ordered if one.change.family == "loss"]
    at = next((i for i, one in enumerate(ordered) if one.change.family in ("pp", "stages")), None)
    if not loss or at is None:
        return ordered
    rest = [one for one in ordered if one.change.family != "loss"]
    before = [one for one in ordered[:at] if one.change.family == "loss"]
    if len(before) == len(loss):
        return ordered
    place = rest.index(ordered[at])
    return [*rest[:place], *loss, *rest[place:]]


def _best_pair(plan: Plan, now: Held, found: Sequence[Relief]) -> tuple[Relief, ...]:
    """The pair of changes of different families that helps most; nothing where no pair beats single changes."""
    tried = sorted(_strongest(found).values(), key=lambda one: -one.saved)[:_PAIRED]
    pairs = []
    for first, second in combinations(tried, 2):
        both = combined(plan, first.change, second.change)
        if both is not None:
            pairs.append(_relief(plan, now, both))
    least = min((one.after.fullest.total for one in found), default=now.fullest.total)
    helpful = sorted((one for one in pairs if one.after.fullest.total < least), key=_key)[:_TIMED]
    return tuple(sorted((_timed(one, plan) for one in helpful), key=_key)[:1])
