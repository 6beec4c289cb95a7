"""The loop: plan, run, diagnose, change one thing, predict, run again, keep it or undo it."""

from dataclasses import replace
from pathlib import Path

from meshwright.files.plan import Plan
from meshwright.files.plan_toml import write_plan
from meshwright.files.run import RunFolder
from meshwright.files.run_io import new_run
from meshwright.files.setup import Setup
from meshwright.files.strict_json import dump
from meshwright.files.tuned import Tuned, TunedStep
from meshwright.layout.proposal import Wanted
from meshwright.loop.candidates import candidates
from meshwright.loop.journal import write_journal
from meshwright.loop.measure import Measurement, Progress, measure, measurement_mode
from meshwright.loop.outcome import Step, TuneResult
from meshwright.planner.rank import plan as rank_plans
from meshwright.predictor.step import predict

_LEAST_NOISE = 0.01  # a change worth less than one percent is not worth a run


def _better(before: Measurement, after: Measurement) -> bool:
    """Kept only when the gain of the medians is beyond the spread of the repeats of either run."""
    gain = 1 - after.step_time_s / before.step_time_s
    return gain > max(before.noise, after.noise, _LEAST_NOISE)


def tune(setup: Setup, runs: Path, progress: Progress, name: str | None = None) -> TuneResult:
    """Run the loop on a job and write its folder: plan, runs, journal (`tune.md`) and `tune.json`.

    Raises AnswerIsNo when nothing fits, RunFailed when a run breaks, InputError when one cannot start.
    """
    folder = new_run(runs, name or setup.name)
    progress("planning")
    ranking = rank_plans(setup, top=5)
    unfixed = rank_plans(replace(setup, proposal=replace(setup.proposal, wanted=Wanted())), top=5)
    current = ranking.plans[0]
    cold = current.prediction or predict(current)
    mode = measurement_mode(current, setup.tune)
    first = measure(
        current, RunFolder(folder.root / "run-1"), train_steps=setup.proposal.training.steps, progress=progress
    )
    warm = predict(current, first.units)
    best, left = first, candidates(setup, first.plan, first.units, first.diagnosis.findings)
    steps: list[Step] = []
    while True:
        noise = max(best.noise, _LEAST_NOISE)
        if len(steps) >= setup.tune.max_changes:
            stopped = f"{len(steps)} change{'s' if len(steps) != 1 else ''} made, as many as [tune] max_changes allows"
            break
        worthwhile = [candidate for candidate in left if candidate.predicted_gain > noise]
        if not worthwhile:
            top = f"{max((c.predicted_gain for c in left), default=0.0):.1%}"
            stopped = f"the best remaining change is predicted to gain {top}, the noise is {noise:.1%}"
            break
        chosen = worthwhile[0]
        progress(f"changing {', '.join(chosen.change)}: predicted to save {chosen.predicted_gain:.1%} of the step")
        run = RunFolder(folder.root / f"run-{len(steps) + 2}")
        after = measure(chosen.plan, run, train_steps=min(4, setup.proposal.training.steps), progress=progress)
        prediction = chosen.plan.prediction or predict(chosen.plan, best.units)
        kept = _better(best, after)
        steps.append(Step(chosen.change, chosen.reason, best, after, prediction, chosen.predicted_gain, kept))
        if kept:
            best = after
            left = candidates(setup, best.plan, best.units, best.diagnosis.findings)
        else:
            left = tuple(candidate for candidate in left if candidate.change != chosen.change)
    result = TuneResult(folder, mode, ranking, unfixed, cold, warm, first, best, tuple(steps), stopped, left)
    _write(result)
    return result


def _final_plan(result: TuneResult) -> Plan:
    """The kept plan with its prediction from measured unit times."""
    return replace(result.final.plan, prediction=predict(result.final.plan, result.final.units))


def _write(result: TuneResult) -> None:
    write_plan(_final_plan(result), result.folder.plan)
    write_journal(result)
    journal = tuple(
        TunedStep(
            change=step.change, reason=step.reason, before=step.before.folder.root.name,
            after=step.after.folder.root.name, predicted_gain=step.predicted_gain, measured_gain=step.measured_gain,
            measured_gain_range=step.measured_gain_range, kept=step.kept,
        )
        for step in result.steps
    )  # fmt: skip
    dump(Tuned(result.mode, result.stopped, journal), result.folder.tuned)
