"""How large the buckets of the gradient exchange should be: rounds, buffers and seconds over a sweep of sizes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.basics.quantities import MIB
from meshwright.files.plan import Plan
from meshwright.predictor.costs import step_costs
from meshwright.predictor.exchanges import Parameters, replica_groups, step_exchange
from meshwright.predictor.stacks import stack_of
from meshwright.predictor.step import pipeline_ends, step_seconds
from meshwright.predictor.table import Figure, layout_table, stage_table

SIZES_MIB = (5.0, 12.5, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0)
_LATENCY = 0.05  # of the exchange: rounds cost less than this where buckets are large enough
_ROUNDS = 2  # fewer leave nothing to run beside the backward


@dataclass(frozen=True, slots=True)
class Bucket:
    """One size: how many rounds the fullest stage sends, the bytes of one buffer, the seconds of all rounds, the share
    of them that is the cost of a round itself and not of its bytes, and the predicted step."""

    mib: float
    rounds: int
    buffer_bytes: float
    exchange_s: float
    latency_share: float
    step_s: float


def sweep(plan: Plan, sizes: Sequence[float] = SIZES_MIB) -> tuple[Bucket, ...]:
    """The plan with each size; empty where nothing is exchanged in buckets (one replica, ZeRO-2 and 3)."""
    setup, layout, proposal = plan.setup, plan.layout, plan.setup.proposal
    if layout.dp * layout.cp == 1 or layout.zero >= 2:
        return ()
    stages = stage_table(layout_table(setup, layout, plan.batch), layout.stages, layout.placement)
    fullest = int(stages[Figure.DENSE].argmax())
    held = Parameters(float(stages[Figure.DENSE][fullest]), float(stages[Figure.EXPERT][fullest]))
    among, stack = replica_groups(proposal.cluster, layout), stack_of(setup)

    def exchange(mib: float) -> tuple[float, int]:
        found = step_exchange(
            proposal.arch, proposal.training, proposal.cluster, layout.zero, mib, among, held,
            int(stages.units[fullest]), stack=stack,
        )  # fmt: skip
        return found.end_s, found.rounds

    whole = exchange(1e9)[0]  # in one round: all that the bytes take
    found = []
    for mib in sizes:
        seconds, rounds = exchange(mib)
        other = replace(layout, bucket_mib=mib)
        costs = step_costs(setup, other, plan.batch, stages)
        step = step_seconds(pipeline_ends(other, plan.batch, costs), costs)
        share = max(0.0, 1 - whole / seconds)
        found.append(Bucket(mib, rounds, mib * MIB, seconds, share, step))
    return tuple(found)


def knee(buckets: Sequence[Bucket]) -> Bucket | None:
    """The smallest size whose rounds cost less than 5 % of the exchange and of which there are at least two; else the
    one with the shortest step."""
    good = [one for one in buckets if one.latency_share < _LATENCY and one.rounds >= _ROUNDS]
    return good[0] if good else min(buckets, key=lambda one: one.step_s, default=None)
