"""Reading a page's story from where it lies: a plan, a run folder, several, or the folder of a tuning loop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from meshwright.basics.errors import InputError, bad_input
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.prediction import Prediction
from meshwright.files.run import MeasuredUnits, RunFolder
from meshwright.files.run_io import (
    read_environment,
    read_findings,
    read_memory,
    read_metrics,
    read_result,
    read_units,
)
from meshwright.files.strict_json import load_as
from meshwright.files.tuned import Tuned
from meshwright.predictor.step import predict, predicted_timeline
from meshwright.reports.story import RunView, Story
from meshwright.traces.spans import read_run

T = TypeVar("T")

COLD, OWN, EARLIER = "before measuring", "from its own unit times", "from the run before"


def _optional(path: Path, read: Callable[[Path], T], missing: list[str], what: str) -> T | None:
    """The file's content, or None with a line in `missing` saying that it was not recorded or cannot be read."""
    if not path.exists():
        missing.append(f"{path.parent.name}: {what} not recorded")
        return None
    try:
        return read(path)
    except InputError as error:
        missing.append(f"{path.parent.name}: {what} unreadable: {error}")
        return None


def run_view(root: Path, missing: list[str], name: str | None = None, before: MeasuredUnits | None = None) -> RunView:
    """One run folder. `before` are the unit times of the run before it, when a loop predicted this one from them.

    Raises InputError when the folder holds no plan.
    """
    folder = RunFolder(root)
    if not folder.plan.exists():
        raise bad_input(
            "is not a run: it holds no plan.toml", file=str(root), legal="a folder written by train or tune"
        )
    plan = read_plan(folder.plan)
    units = _optional(folder.units, read_units, missing, "unit times")
    predictions: dict[str, Prediction] = {}
    if before is not None:
        predictions[EARLIER] = predict(plan, before)
    else:
        predictions[COLD] = plan.prediction or predict(plan)
        if units is not None:
            predictions[OWN] = predict(plan, units)
    return RunView(
        name=name or root.name,
        plan=plan,
        predictions=predictions,
        predicted_timeline=predicted_timeline(plan, before or units),
        result=_optional(folder.result, read_result, missing, "the run's result"),
        metrics=_optional(folder.metrics, read_metrics, missing, "losses and step times") or (),
        memory=_optional(folder.memory, read_memory, missing, "memory") or (),
        diagnosis=_optional(folder.findings, read_findings, missing, "a diagnosis (`meshwright diagnose` writes it)"),
        timeline=_optional(folder.spans, lambda spans: read_run(spans.parent), missing, "a timeline"),
        environment=_optional(folder.environment, read_environment, missing, "the environment") or {},
    )


def tune_story(root: Path) -> Story:
    """The story of a tuning loop's folder (`tune.json`, its runs and the plan it kept). Raises InputError."""
    tuned = load_as(RunFolder(root).tuned, Tuned)
    turns = tuned.journal
    missing: list[str] = []
    base_of = {turn.after: turn.before for turn in turns}
    names = list(dict.fromkeys([*(turn.before for turn in turns), *base_of])) or ["run-1"]
    views = []
    for name in sorted(names, key=lambda n: int(n.rsplit("-", 1)[-1])):
        base = base_of.get(name)
        units = read_units(RunFolder(root / base).units) if base else None
        views.append(run_view(root / name, missing, name, units))
    plan = read_plan(RunFolder(root).plan)
    return Story(f"Tuning {plan.setup.name}", plan, tuple(views), turns, tuned.stopped, tuple(missing))


def plan_story(plan: Plan) -> Story:
    """The story of a plan that has not run."""
    full = plan if plan.prediction is not None else Plan(plan.setup, plan.layout, plan.batch, predict(plan))
    return Story(f"Plan for {plan.setup.name}", full, plan_timeline=predicted_timeline(plan))


def story_of(source: Plan | Path | Sequence[Path]) -> Story:
    """The story of a plan, a plan file, a run folder, a loop's folder, or several run folders side by side.

    Raises InputError when a path is none of these.
    """
    if isinstance(source, Plan):
        return plan_story(source)
    paths = [source] if isinstance(source, Path) else list(source)
    if not paths:
        raise bad_input("nothing to report on", legal="a run folder or a plan")
    if len(paths) == 1:
        path = paths[0]
        if not path.exists():
            raise bad_input("does not exist", file=str(path), legal="a run folder or a plan")
        if path.is_file():
            return plan_story(read_plan(path))
        if RunFolder(path).tuned.exists():
            return tune_story(path)
    missing: list[str] = []
    names = [path.name for path in paths]
    labels = names if len(set(names)) == len(names) else [str(path) for path in paths]
    views = tuple(run_view(path, missing, name) for path, name in zip(paths, labels, strict=True))
    title = f"Run {views[0].name}" if len(views) == 1 else "Runs " + ", ".join(view.name for view in views)
    return Story(title, views[-1].plan, views, missing=tuple(missing))
