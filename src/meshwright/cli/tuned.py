"""What `tune` answers, from what the loop did."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshwright.files import outputs as out
from meshwright.files import outputs_run as ran
from meshwright.files.convert import diagnose_output, finding_part, plan_entry, plan_figures, train_output
from meshwright.files.plan import Plan
from meshwright.loop.measure import Measurement
from meshwright.loop.outcome import TuneResult
from meshwright.planner.rank import PlanResult
from meshwright.predictor.step import predict

Runners = Callable[[Plan], Sequence[str]]


def tune_output(found: TuneResult, runners: Runners) -> ran.TuneOutput:
    """The loop's result as the object that `tune --json` prints; `runners` names who can run a plan."""

    def run_part(run: Measurement) -> ran.TunedRunPart:
        plan = replace(run.plan, prediction=predict(run.plan, run.units))
        return ran.TunedRunPart(
            run=str(run.folder.root), prediction=plan_figures(plan, runners(plan)),
            measured=train_output(run.result), diagnosis=diagnose_output(run.diagnosis),
        )  # fmt: skip

    def entries(ranking: PlanResult) -> list[out.PlanEntry]:
        return [plan_entry(plan, runners(plan), why) for plan, why in zip(ranking.plans, ranking.why, strict=True)]

    journal = [
        ran.JournalPart(
            change=dict(step.change), reason=step.reason, predicted=step.predicted_gain, measured=step.measured_gain,
            measured_range=step.measured_gain_range, kept=step.kept, after=run_part(step.after),
            changed_plan=plan_figures(replace(step.after.plan, prediction=step.predicted), runners(step.after.plan)),
        )
        for step in found.steps
    ]  # fmt: skip
    kept = [step for step in journal if step.kept]
    last = kept[-1] if kept else None
    return ran.TuneOutput(
        mode=found.mode, plan=str(found.folder.plan), first=run_part(found.first), journal=journal,
        prediction=plan_figures(replace(found.first.plan, prediction=found.cold), runners(found.first.plan)),
        findings=[finding_part(finding) for finding in found.first.diagnosis.findings],
        changed_plan=last.changed_plan if last else None, predicted_gain=last.predicted if last else None,
        measured_gain=last.measured if last else None, measured=train_output(found.final.result),
        remaining=[finding_part(finding) for finding in found.final.diagnosis.findings],
        ranking=entries(found.ranking), unfixed=entries(found.unfixed), report=str(found.folder.report),
        stopped=found.stopped,
    )  # fmt: skip
