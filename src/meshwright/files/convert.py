"""From our values to the objects that verbs print."""

import math
from collections.abc import Sequence
from typing import Literal

from meshwright.basics.quantities import GIB
from meshwright.files.findings import Diagnosis, Finding
from meshwright.files.outputs import (
    BatchPart,
    CheckOutput,
    LayoutPart,
    ModelPart,
    NearbyPart,
    PlanEntry,
    PlanFigures,
    PredictOutput,
    ProblemPart,
)
from meshwright.files.outputs_run import DiagnoseOutput, FindingPart, RankPart, TrainOutput
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction, StageMemory, Verdict, verdict
from meshwright.files.run import RunResult
from meshwright.layout.batch import equation, micro_batches_for
from meshwright.layout.degrees import Layout, describe
from meshwright.layout.given import DEGREES, asked_degrees, settled
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.parameters import active_parameters, total_parameters
from meshwright.model.units import compact
from meshwright.model.wording import described


def prediction_of(plan: Plan) -> Prediction:
    """The plan's prediction. Raises ValueError when it has none."""
    if plan.prediction is None:
        raise ValueError("the plan carries no prediction")
    return plan.prediction


def _problem(problem: Problem) -> ProblemPart:
    return ProblemPart(
        rule=problem.rule,
        fields=list(problem.fields),
        origins=list(problem.origins),
        message=problem.message,
        legal=list(problem.legal),
    )


def nearby_part(kind: Literal["neighbour", "plain"], plan: Plan) -> NearbyPart:
    """One predicted layout beside what was asked."""
    found = prediction_of(plan)
    return NearbyPart(
        mode=found.mode, kind=kind, layout=describe(plan.layout), micro_batch=plan.batch.micro_batch,
        micro_batches=plan.batch.micro_batches, step_time_s=found.step_time_s,
        tokens_per_s_per_gpu=found.tokens_per_s_per_gpu, memory_gib=found.worst_memory.total / GIB,
        p_oom=max((rank.p_oom for rank in found.memory if rank.p_oom is not None), default=None),
    )  # fmt: skip


def check_output(proposal: Proposal, problems: Sequence[Problem], nearby: Sequence[NearbyPart] = ()) -> CheckOutput:
    """Errors and warnings apart, with the batch and the fixed part of the layout."""
    wanted = proposal.wanted
    errors = [_problem(problem) for problem in problems if problem.severity == "error"]
    micro, count = wanted.micro_batch, wanted.micro_batches
    if count is None and micro is not None and wanted.dp is not None:
        count = micro_batches_for(proposal.global_batch, micro, wanted.dp)
    batch = BatchPart.model_validate(
        {
            "global": proposal.global_batch, "seq_len": proposal.seq_len, "micro_batch": micro, "micro_batches": count,
            "dp": wanted.dp, "equation": equation(proposal.global_batch, micro, count, wanted.dp),
        }
    )  # fmt: skip
    keys = [name for name in Wanted.__slots__ if name not in ("micro_batch", "micro_batches", "stages")]
    layout: dict[str, object] = {key: getattr(wanted, key) for key in keys}
    layout["stages"] = None if wanted.stages is None else [list(compact(units)) for units in wanted.stages]
    arch = proposal.arch
    model = ModelPart(
        name=arch.name, text=described(arch), parameters=total_parameters(arch),
        active_parameters=active_parameters(arch), note=arch.note,
    )  # fmt: skip
    fixed = asked_degrees(settled(proposal))
    undecided = [] if errors else [f"layout.{name}" for name in DEGREES if name not in fixed]
    return CheckOutput(
        valid=not errors, problems=errors, model=model, batch=batch, layout=layout, nearby=list(nearby),
        warnings=[_problem(problem) for problem in problems if problem.severity == "warning"],
        undecided=undecided, thriftiest=[] if errors or undecided else _left_open(wanted),
    )  # fmt: skip


def _left_open(wanted: Wanted) -> list[str]:
    """What `check` takes the thriftiest choice of, unlike verbs that need a complete plan and take defaults."""
    found = [f"layout.{name}" for name in ("zero", "recompute") if getattr(wanted, name) is None]
    return found if wanted.micro_batch or wanted.micro_batches else [*found, "batch.micro_batch"]


def layout_part(layout: Layout) -> LayoutPart:
    """Everything of a layout but its stages."""
    values = {name: getattr(layout, name) for name in Layout.__slots__ if name not in ("stages", "placement")}
    return LayoutPart(**values, placement=list(layout.placement))


def _figures(plan: Plan, runnable_by: Sequence[str]) -> dict[str, object]:
    found = prediction_of(plan)
    chances = [rank.p_oom for rank in found.memory if rank.p_oom is not None]
    return {
        "mode": found.mode, "layout": layout_part(plan.layout), "micro_batch": plan.batch.micro_batch,
        "micro_batches": plan.batch.micro_batches, "stages": [list(compact(units)) for units in plan.layout.stages],
        "step_time_s": found.step_time_s, "step_time_range_s": found.step_time_range_s,
        "tokens_per_s": found.tokens_per_s, "tokens_per_s_per_gpu": found.tokens_per_s_per_gpu, "mfu": found.mfu,
        "bubble_fraction": found.bubble_fraction, "exposed_comm_s": found.exposed_comm_s,
        "stage_compute_s": list(found.stage_compute_s), "memory_gib": found.worst_memory.total / GIB,
        "memory_limit_gib": found.memory_limit_bytes / GIB,
        "p_oom": max(chances, default=None), "fits": found.fits, "runnable_by": list(runnable_by),
        "terms": dict(found.terms), "origins": dict(found.origins),
    }  # fmt: skip


def plan_figures(plan: Plan, runnable_by: Sequence[str] = ()) -> PlanFigures:
    """The figures of one plan."""
    return PlanFigures.model_validate(_figures(plan, runnable_by))


def plan_entry(plan: Plan, runnable_by: Sequence[str], why: str) -> PlanEntry:
    """One entry of `plans`."""
    return PlanEntry.model_validate({**_figures(plan, runnable_by), "why": why})


def predict_output(plan: Plan, runnable_by: Sequence[str], why: str) -> PredictOutput:
    """One entry of `plans` on its own."""
    return PredictOutput.model_validate({**_figures(plan, runnable_by), "why": why})


def verdict_of(found: Prediction, rank: StageMemory) -> Verdict:
    """What to say of one pipeline rank's memory."""
    return verdict(rank, found.memory_limit_bytes)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def train_output(result: RunResult) -> TrainOutput:
    """What a run did."""
    return TrainOutput(
        mode=result.mode, run=result.run, steps=result.steps, loss=_finite(result.loss),
        first_loss=_finite(result.first_loss), tokens_per_s=result.tokens_per_s, step_time_s=result.step_time_s,
        step_time_spread_s=result.step_time_spread, windows_s=list(result.windows), mfu=result.mfu,
        bubble_fraction=result.bubble_fraction, memory_gib=result.memory_gib, dilation=result.dilation,
    )  # fmt: skip


def finding_part(finding: Finding) -> FindingPart:
    """One finding."""
    return FindingPart(
        kind=finding.kind, ranks=list(finding.ranks), stages=list(finding.stages), evidence=dict(finding.evidence),
        cause=finding.cause, cost_s_per_step=finding.cost_s_per_step, share=finding.share,
        confidence=finding.confidence, change=dict(finding.change), predicted_gain=finding.predicted_gain,
        verify=finding.verify,
    )  # fmt: skip


def diagnose_output(diagnosis: Diagnosis) -> DiagnoseOutput:
    """A diagnosis."""
    ranks = [RankPart(**{name: getattr(split, name) for name in RankPart.model_fields}) for split in diagnosis.ranks]
    return DiagnoseOutput(
        mode=diagnosis.mode, inputs=list(diagnosis.inputs), window=diagnosis.window,
        step_time_s=diagnosis.step_time_s, ranks=ranks, bubble=dict(diagnosis.bubble),
        memory=dict(diagnosis.memory), findings=[finding_part(finding) for finding in diagnosis.findings],
        abstained=list(diagnosis.abstained), tables=dict(diagnosis.tables),
    )  # fmt: skip
