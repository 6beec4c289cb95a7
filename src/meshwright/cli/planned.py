"""What `plan`, `predict` and `why` answer."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.cli.completed import read_or_cut
from meshwright.cli.targets import target as _target
from meshwright.files import outputs as out
from meshwright.files.convert import plan_entry, predict_output, prediction_of
from meshwright.files.outputs_plan import BucketPart, BudgetPart, ParetoPart, RelaxationPart
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import write_plan
from meshwright.files.resolve import read_setup

if TYPE_CHECKING:
    from meshwright.planner.candidates import Bench

PathLike = Path | str
GB = 10**9
_COMMUNICATION = ("tp", "cp", "ep", "pp", "dp")


def runners(plan: Plan) -> tuple[str, ...]:
    """The frameworks that can run a plan."""
    from meshwright.layout.runners import runnable_by

    proposal = plan.setup.proposal
    return runnable_by(proposal.arch, proposal.training, plan.layout)


def predicted(file: PathLike, overrides: Sequence[str] = ()) -> Plan:
    """The plan of a file with its prediction; its stages are cut where they are all that it leaves open."""
    from meshwright.predictor.step import predict

    plan, _ = read_or_cut(file, overrides)
    return replace(plan, prediction=predict(plan))


def more_figures(plan: Plan) -> dict[str, object]:
    """The figures of `PlanFigures` beside those of a prediction: HFU, communication by group, bytes."""
    from meshwright.predictor.traffic import traffic_of
    from meshwright.predictor.utilisation import hardware_flops_utilisation

    found = prediction_of(plan)
    traffic = traffic_of(plan.setup, plan.layout, plan.batch)
    return {
        "hfu": hardware_flops_utilisation(plan.setup, plan.layout, plan.batch, found.mfu),
        "exposed_comm_by_group_s": {
            group: found.terms[f"{group}_comm"] for group in _COMMUNICATION if found.terms.get(f"{group}_comm")
        },
        "traffic_gb": {group: size / GB for group, size in traffic.sent.items()},
        "between_nodes_gb": traffic.between_nodes / GB,
    }


def plan_output(
    file: PathLike, overrides: Sequence[str], top: int, output: Path | None, pareto: bool, sensitivity: bool
) -> out.PlanOutput:
    """Rank the plans of a job; write the best one to `output`. Raises AnswerIsNo when nothing fits."""
    from meshwright.planner.candidates import Bench
    from meshwright.planner.rank import ranked

    target = _target(output, [file]) if output is not None else None
    bench = Bench(read_setup(file, overrides))
    found = ranked(bench, top)
    if target is not None:
        write_plan(found.plans[0], target)
    return out.PlanOutput(
        evaluated=found.evaluated,
        seconds=found.seconds,
        plans=[
            plan_entry(one, runners(one), why).model_copy(update=more_figures(one))
            for one, why in zip(found.plans, found.why, strict=True)
        ],
        rejected=[out.RejectedPart(family=r.family, count=r.count, reason=r.reason) for r in found.rejected],
        choices=_choices(bench, found.plans[0]),
        pareto=_pareto(bench, found.plans[0]) if pareto else [],
        sensitivity=_sensitivity(bench, found.plans[0]) if sensitivity else [],
    )


def _choices(bench: "Bench", best: Plan) -> list[out.ChoicePart]:
    """What each choice that the job of `[search] cost_of` makes would cost here; `best` is this job's first plan."""
    setup = bench.setup
    if setup.cost_of is None:
        return []
    from meshwright.layout.proposal import Wanted
    from meshwright.planner.explain import cost_of_choices

    wanted = read_setup(setup.cost_of).proposal.wanted
    # The number of micro-batches follows from the batch equation: it is no choice of its own.
    names = [f.name for f in fields(wanted) if f.name not in ("placement", "micro_batches")]
    chosen = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    return [
        out.ChoicePart(field=one.field, value=one.value, step_time_s=one.step_s, cost=one.cost, reason=one.reason)
        for one in cost_of_choices(setup, chosen, best if setup.proposal.wanted == Wanted() else None, bench)
    ]


def _pareto(bench: "Bench", best: Plan) -> list[ParetoPart]:
    from meshwright.basics.quantities import GIB
    from meshwright.layout.degrees import describe
    from meshwright.planner.pareto import front

    points = front(bench, best)
    return [
        ParetoPart(
            layout=describe(point.plan.layout), micro_batch=point.plan.batch.micro_batch,
            micro_batches=point.plan.batch.micro_batches, memory_gib=point.bytes / GIB, step_time_s=point.step_s,
            slower=point.step_s / points[0].step_s - 1,
        )
        for point in points
    ]  # fmt: skip


def _sensitivity(bench: "Bench", best: Plan) -> list[RelaxationPart]:
    from meshwright.layout.degrees import describe
    from meshwright.planner.sensitivity import sensitivity

    return [
        RelaxationPart(
            change=one.change, gain=one.gain,
            tokens_per_s=None if one.plan is None else prediction_of(one.plan).tokens_per_s,
            layout="no plan" if one.plan is None else describe(one.plan.layout),
            micro_batch=None if one.plan is None else one.plan.batch.micro_batch,
        )
        for one in sensitivity(bench.setup, best)
    ]  # fmt: skip


def predict_answer(
    file: PathLike, overrides: Sequence[str], tokens: str | None, price: float | None, buckets: bool
) -> out.PredictOutput:
    """The figures of one plan; with `tokens` ("300B") what so many take, at `price` a GPU-hour."""
    from meshwright.basics.errors import bad_input
    from meshwright.cli.advice import breakdown

    if price is not None and (tokens is None or price < 0):
        raise bad_input("is the price of a GPU-hour, for --tokens", field="--price", value=price)
    found = predicted(file, overrides)
    extra = more_figures(found)
    if tokens is not None:
        extra["budget"] = _budget(found, tokens, price)
    if buckets:
        extra["buckets"] = _buckets(found)
    return predict_output(found, runners(found), breakdown(found)).model_copy(update=extra)


def _buckets(plan: Plan) -> list[BucketPart]:
    from meshwright.basics.quantities import GIB
    from meshwright.planner.buckets import knee, sweep

    swept = sweep(plan)
    best = knee(swept)
    return [
        BucketPart(
            mib=one.mib, rounds=one.rounds, buffer_gib=one.buffer_bytes / GIB, exchange_s=one.exchange_s,
            latency_share=one.latency_share, step_time_s=one.step_s, knee=one is best,
        )
        for one in swept
    ]  # fmt: skip


def _budget(plan: Plan, tokens: str, price: float | None) -> BudgetPart:
    from meshwright.basics.errors import bad_input
    from meshwright.basics.quantities import parse_count

    count = parse_count(tokens, "--tokens")
    if count <= 0:
        raise bad_input("must be above zero", field="--tokens", value=tokens)
    cluster = plan.setup.proposal.cluster
    seconds = count / prediction_of(plan).tokens_per_s
    hours = seconds / 3600 * cluster.gpus
    kinds = [(part.gpus, part.device.watts) for part in cluster.parts] or [(cluster.gpus, cluster.device.watts)]
    known = all(watts is not None for _, watts in kinds)
    watts = sum(gpus * (power or 0.0) for gpus, power in kinds) / cluster.gpus if known else None
    return BudgetPart(
        tokens=count, steps=-(-count // plan.batch.tokens), days=seconds / 86400, gpu_hours=hours,
        energy_mwh=None if watts is None else hours * watts / 1e6, board_watts=watts,
        cost=None if price is None else hours * price,
    )  # fmt: skip


def why_output(first: PathLike, second: PathLike, overrides: Sequence[str] = ()) -> out.WhyOutput:
    """Two plans term by term, the largest difference first, and in what they differ."""
    from meshwright.layout.degrees import describe
    from meshwright.planner.explain import differences
    from meshwright.planner.explain import why as terms_of

    one, two = (predicted(file, overrides) for file in (first, second))
    terms = [
        out.TermPart(term=term.name, first_s=term.first_s, second_s=term.second_s, difference_s=term.difference_s)
        for term in terms_of(one, two)
    ]
    return out.WhyOutput(
        mode="predicted", first=describe(one.layout), second=describe(two.layout), terms=terms,
        first_step_time_s=prediction_of(one).step_time_s, second_step_time_s=prediction_of(two).step_time_s,
        differs=[
            out.DifferencePart(field=field, first=a, second=b) for field, a, b in differences(one, two)
        ],
    )  # fmt: skip
