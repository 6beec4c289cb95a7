"""Which tensor of a plan a failed request was for: `meshwright memory PLAN --oom`."""

from dataclasses import dataclass

from meshwright.files.plan import Plan
from meshwright.planner.oom_request import Reading, Request
from meshwright.planner.plan_tensor import PlanTensor, merged
from meshwright.planner.run_tensors import run_tensors
from meshwright.planner.state_tensors import state_tensors

_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor whose size would be printed like the request. `exact`: by its own bytes; else by the block that the
    allocator asks for, which other sizes share."""

    tensor: PlanTensor
    exact: bool
    read_as: str  # the unit that the size was read in


@dataclass(frozen=True, slots=True)
class Explanation:
    """All matches, those by their own bytes first; without a match the nearest tensors. `rank` is the pipeline rank
    of the device that the message names, None where it does not say or a node holds parts of several."""

    request: Request
    matches: tuple[Match, ...]
    nearest: tuple[PlanTensor, ...]
    rank: int | None


def tensors_of_plan(plan: Plan) -> tuple[PlanTensor, ...]:
    """Every kind of tensor that a rank of the plan allocates while it trains, the largest first."""
    return merged([*run_tensors(plan), *state_tensors(plan)])


def explain(plan: Plan, request: Request) -> Explanation:
    """What of the plan has the size of a failed request. MB is read as 10^6 bytes, and as MiB as well."""
    tensors = tensors_of_plan(plan)
    matches: list[Match] = []
    for reading in request.readings:
        known = {match.tensor for match in matches}
        matches += [match for one in tensors if one not in known and (match := _match(one, reading)) is not None]
    rank = _rank_of(plan, request.gpu)
    ordered = sorted(matches, key=lambda m: (not m.tensor.expected, not _holds(m.tensor, rank), not m.exact))
    near = sorted(tensors, key=lambda one: abs(one.n_bytes - request.size) / max(one.n_bytes, request.size))
    return Explanation(request, tuple(ordered), () if matches else tuple(near[:_NEAREST]), rank)


def _match(tensor: PlanTensor, reading: Reading) -> Match | None:
    if reading.holds(tensor.n_bytes):
        return Match(tensor, True, reading.words)
    return Match(tensor, False, reading.words) if reading.holds(tensor.block) else None


def _holds(tensor: PlanTensor, rank: int | None) -> bool:
    return rank is None or rank in tensor.ranks


def _rank_of(plan: Plan, gpu: int | None) -> int | None:
    """The pipeline rank of a node's device, where all nodes that have it hold the same one there. Ranks are numbered
    with pp outermost: the first device of a node with `first` devices before it is pipeline rank first // (ranks of one
    pipeline rank)."""
    layout = plan.layout
    each = layout.dp * layout.tp * layout.cp
    nodes = plan.setup.proposal.cluster.node_ranks
    places = {ranks[gpu] // each for ranks in nodes if gpu is not None and gpu < len(ranks)}
    return places.pop() if len(places) == 1 else None
