"""What `tune` tells at its end: chosen, predicted, measured, found, changed, verified, and where the report is."""

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files import outputs_run as ran
from meshwright.reports.terminal import View
from meshwright.reports.terminal_parts import change_text, heading, layout_text, percent, stages_text, step_text, table
from meshwright.reports.terminal_run import diagnose_view, findings_view


def tune_view(answer: ran.TuneOutput) -> View:
    """The loop in the order in which it happened."""
    return [
        *_chosen(answer),
        *_measured(answer.first, "the first plan, as it ran"),
        heading("what the first run showed"),
        *diagnose_view(answer.first.diagnosis),
        *_changes(answer),
        Text(f"ended: {answer.stopped}"),
        heading("still found in the kept plan"),
        *findings_view(answer.remaining),
        Text(f"plan        {answer.plan}"),
        *([Text(f"report      {answer.report}")] if answer.report else []),
    ]


def _chosen(answer: ran.TuneOutput) -> View:
    grid = table(["", "layout", "step, predicted", "GiB"], left=("", "layout"))
    rows = [("chosen", answer.prediction), *(("or", plan) for plan in answer.ranking[1:])]
    rows += [("unfixed", plan) for plan in answer.unfixed[:3]]
    for label, plan in rows:
        grid.add_row(label, layout_text(plan), step_text(plan), f"{plan.memory_gib:.2f}")
    stages = stages_text(answer.prediction.stages)
    return [
        heading("what was chosen (unfixed: with none of the job's layout fixed; before measuring anything)"),
        grid,
        Text(f"stages      {stages}"),
    ]


def _measured(run: ran.TunedRunPart, title: str) -> View:
    result = run.measured
    windows = ", ".join(seconds_text(window) for window in result.windows_s)
    scale = f", K = {result.dilation:g}" if result.mode == "dilated" else ""
    return [
        heading(title),
        Text(f"run         {run.run}"),
        Text(f"step        {seconds_text(run.prediction.step_time_s)}, predicted from its own unit times"),
        Text(f"            {seconds_text(result.step_time_s)}, {result.mode}{scale}; repeats: {windows}"),
        Text(f"loss        {_loss(result.first_loss)} -> {_loss(result.loss)} over {result.steps} steps"),
    ]


def _loss(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


def _changes(answer: ran.TuneOutput) -> View:
    parts: list[RenderableType] = []
    for number, step in enumerate(answer.journal, 1):
        low, high = step.measured_range
        grid = table(["", "predicted", answer.mode], left=("",))
        after = step.after
        grid.add_row("step", seconds_text(step.changed_plan.step_time_s), seconds_text(after.measured.step_time_s))
        grid.add_row("saved", percent(step.predicted), f"{percent(step.measured)} ({percent(low)} to {percent(high)})")
        for rank, (idle, seen) in enumerate(_idle(step)):
            grid.add_row(f"not computing, pipeline rank {rank}", percent(idle), percent(seen))
        parts += [
            heading(f"change {number}: {'; '.join(f'{key} = {change_text(v)}' for key, v in step.change.items())}"),
            Text(f"why         {step.reason}"),
            grid,
            Text("kept" if step.kept else "undone: the gain is not beyond the spread of the repeats"),
        ]
    return parts


def _idle(step: ran.JournalPart) -> list[tuple[float, float | None]]:
    """Predicted and measured share of the step in which each pipeline rank does not compute."""
    plan, ranks = step.changed_plan, step.after.diagnosis.ranks
    predicted = [1 - busy / plan.step_time_s for busy in plan.stage_compute_s]
    each = len(ranks) // len(predicted) if len(ranks) % len(predicted) == 0 else 0
    measured: list[float | None] = [None] * len(predicted)
    for pipeline_rank in range(len(predicted) if each else 0):
        own = ranks[pipeline_rank * each : (pipeline_rank + 1) * each]
        measured[pipeline_rank] = 1 - sum(r.compute_s for r in own) / sum(r.window_s for r in own)
    return list(zip(predicted, measured, strict=True))
