"""`report.html`: one self-contained page about a plan, a run, several runs, or a tuning loop."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from meshwright.files.patch import change_text
from meshwright.files.plan import Plan
from meshwright.files.run import StepMetrics
from meshwright.files.strict_json import write_whole
from meshwright.reports.gather import story_of
from meshwright.reports.headline import findings, headline, settings, stages_table
from meshwright.reports.loss_curve import loss_curve
from meshwright.reports.memory_bars import memory_bars
from meshwright.reports.picture import Picture
from meshwright.reports.pipeline_picture import Panel, longest_step_ms, pipeline_picture
from meshwright.reports.rank_split import rank_split
from meshwright.reports.step_picture import StepRow, step_picture, terms_picture
from meshwright.reports.story import RunView, Story


def write_report(source: Plan | Path | Sequence[Path], path: Path) -> Path:
    """Write the page about a plan, a plan file, a run folder, a loop's folder or several runs; returns `path`.

    The page loads nothing from the network. Raises InputError when a source is none of these.
    """
    story = story_of(source)
    write_whole(path, page(story))
    return path


def page(story: Story) -> str:
    """The page's HTML."""
    # Imported here: they cost a second, and every verb imports this module's neighbours.
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    templates = resources.files("meshwright.reports") / "templates"
    texts = {name: (templates / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["change_text"] = change_text
    template = environment.from_string((templates / "report.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        story=story, headline=headline(story), sections=sections(story), findings=findings(story),
        stages=stages_table(story), settings=settings(story), css=texts["report.css"], js=texts["report.js"],
        plotly=get_plotlyjs(),
    )  # fmt: skip


def sections(story: Story) -> tuple[Picture, ...]:
    """The page's pictures in reading order; a picture without anything recorded to draw is left out."""
    found: list[Picture] = []
    timed = [view for view in story.runs if view.result is not None and view.result.windows]
    if timed:
        found.append(step_picture([_step_row(view) for view in timed]))
    found += _timelines(story)
    diagnosed = {
        view.name: view.diagnosis for view in story.runs if view.diagnosis is not None and view.diagnosis.ranks
    }
    if diagnosed:
        found.append(rank_split(diagnosed))
    predictions = {view.name: view.prediction for view in story.runs if view.prediction is not None}
    if not predictions and story.plan.prediction is not None:
        predictions = {"plan": story.plan.prediction}
    if predictions:
        found.append(terms_picture(predictions))
    if not story.runs and story.plan.prediction is not None:
        found.append(memory_bars(story.plan.prediction))
    elif story.runs and (last := story.runs[-1]).prediction is not None:
        found.append(memory_bars(last.prediction, last.memory, last.pipeline_rank_of))
    losses: dict[str, tuple[StepMetrics, ...]] = {view.name: view.metrics for view in story.runs if view.metrics}
    if losses:
        found.append(loss_curve(losses))
    return tuple(found)


def _step_row(view: RunView) -> StepRow:
    assert view.result is not None
    predictions = {f"predicted {basis}": prediction.step_time_s for basis, prediction in view.predictions.items()}
    return StepRow(view.name, view.result.mode, view.result.windows, predictions)


def _timelines(story: Story) -> list[Picture]:
    """A picture a run with its predicted timeline above its measured one; for a plan alone the predicted one."""
    if not story.runs:
        if story.plan_timeline is None or not len(story.plan_timeline):
            return []
        row = "pp rank" if story.plan.layout.world > story.plan.layout.pp else "rank"
        return [pipeline_picture("timeline", "Timeline of a step", [Panel("", story.plan_timeline, row)])]
    drawn = [(view, _panels(view)) for view in story.runs]
    span_ms = longest_step_ms([panel for _, panels in drawn for panel in panels])  # pictures of a page share a scale
    several = len(story.runs) > 1
    return [
        pipeline_picture(
            f"timeline-{number}", "Timeline of a step" + (f": {view.name}" if several else ""), panels, span_ms
        )
        for number, (view, panels) in enumerate(drawn)
        if panels
    ]


def _panels(view: RunView) -> list[Panel]:
    panels = []
    if view.predicted_timeline is not None and len(view.predicted_timeline):
        whole = len(view.predicted_timeline.recorded) == view.plan.layout.world
        panels.append(Panel(view.basis, view.predicted_timeline, "rank" if whole else "pp rank"))
    if view.timeline is not None and len(view.timeline):
        panels.append(Panel(view.name, view.timeline))
    return panels
