"""What each verb answers: the rooms' functions put together, one function a verb, each returning its output object."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from meshwright.basics.errors import bad_input
from meshwright.cli.completed import predicted
from meshwright.cli.planned import plan_output, predict_answer, runners, why_output
from meshwright.cli.targets import target as _target
from meshwright.files import outputs as out
from meshwright.files import outputs_run as ran
from meshwright.files.convert import (
    check_output,
    diagnose_output,
    nearby_part,
    plan_figures,
    train_output,
)
from meshwright.files.convert_memory import memory_output
from meshwright.files.outputs_memory import MemoryOutput, TracedStagePart
from meshwright.files.plan_toml import read_plan, write_plan
from meshwright.files.resolve import read_setup
from meshwright.files.setup import Setup
from meshwright.files.strict_json import write_whole

if TYPE_CHECKING:
    from meshwright.files.outputs_validate import ValidateOutput

PathLike = Path | str
Progress = Callable[[str], None]


def _quiet(line: str) -> None:
    """Progress that nobody reads."""


def check(file: PathLike, overrides: Sequence[str] = ()) -> out.CheckOutput:
    """Judge a job or plan by all rules, and predict what could be chosen instead."""
    from meshwright.cli.confirm import confirmed
    from meshwright.cli.feasible import infeasible
    from meshwright.cli.nearby import nearby
    from meshwright.layout.rules import judge

    setup = read_setup(file, overrides)
    if setup.cost_of is not None:
        if not setup.cost_of.is_file():
            missing = repr(str(setup.cost_of))
            raise bad_input("there is no such file", file=str(file), field="search.cost_of", value=missing)
        read_setup(setup.cost_of)  # complains of what is wrong in it
    problems = confirmed(setup, judge(setup.proposal))
    if not any(problem.severity == "error" for problem in problems):
        problems = (*infeasible(setup, file, overrides), *problems)
    return check_output(setup.proposal, problems, [nearby_part(*found) for found in nearby(setup, problems)])


def memory(
    file: PathLike, overrides: Sequence[str] = (), *, oom: str | None = None, fit: bool = False, traced: bool = False,
    progress: Progress = _quiet,
) -> MemoryOutput:  # fmt: skip
    """The bytes of each pipeline rank, and what would make it fit; `oom` a failed request to explain, `fit` the largest
    that fits, `traced` a trace of the trainer's own step as well."""
    from meshwright.cli import memory_parts as parts
    from meshwright.planner.fit import largest
    from meshwright.planner.oom import explain
    from meshwright.planner.oom_request import parse_request
    from meshwright.planner.relief import reliefs

    asked = None if oom is None else parse_request(oom)
    plan, cut = predicted(file, overrides)
    beside: list[TracedStagePart] = []
    if traced:
        from meshwright.cli.traced_parts import traced_parts

        beside = traced_parts(plan, progress)
    return memory_output(
        plan, parts.recipe_part(plan), parts.advice_parts(reliefs(plan)),
        oom=None if asked is None or oom is None else parts.oom_part(oom, explain(plan, asked)),
        fit=parts.fit_parts(largest(plan)) if fit else [], traced=beside, cut=cut,
    )  # fmt: skip


def plan(
    file: PathLike, overrides: Sequence[str] = (), *, top: int = 5, output: Path | None = None, pareto: bool = False,
    sensitivity: bool = False,
) -> out.PlanOutput:  # fmt: skip
    """Rank the plans of a job; write the best one to `output`. Raises AnswerIsNo when nothing fits."""
    return plan_output(file, overrides, top, output, pareto, sensitivity)


def predict(
    file: PathLike, overrides: Sequence[str] = (), *, tokens: str | None = None, price: float | None = None,
    buckets: bool = False,
) -> out.PredictOutput:  # fmt: skip
    """The figures of one plan; with `tokens` ("300B") what so many take, at `price` a GPU-hour."""
    return predict_answer(file, overrides, tokens, price, buckets)


def why(first: PathLike, second: PathLike, overrides: Sequence[str] = ()) -> out.WhyOutput:
    """Two plans term by term, the largest difference first."""
    return why_output(first, second, overrides)


def validate(
    rows: PathLike, *, output: Path | None = None, plot: Path | None = None, fit: Path | None = None,
    progress: Progress = _quiet,
) -> "ValidateOutput":  # fmt: skip
    """Predict every row of a measured table; `output` gets the predictions as CSV, `plot` the picture as HTML, `fit`
    the machine's figures fitted to the rows, where they help."""
    from meshwright.cli.validated import validated

    taken: list[PathLike] = [rows]
    for path, option in ((output, "--output"), (plot, "--plot"), (fit, "--fit")):
        if path is not None:
            taken.append(_target(path, taken, option))
    if fit is not None and fit.exists():
        raise bad_input("exists already", field="--fit", value=fit, legal="name another file")
    return validated(Path(rows), output, plot, fit, progress)


def _reading(setup: Setup, data: Path | None) -> Setup:
    """The setup with other text to train on. Raises InputError when there is none at that path."""
    if data is None:
        return setup
    if not data.exists():
        raise bad_input("there is no such file or folder", field="--data", value=data)
    return replace(setup, data=replace(setup.data, path=str(data)))


def train(
    file: PathLike, overrides: Sequence[str] = (), *, runs: Path = Path("runs"), name: str | None = None,
    steps: int | None = None, mode: Literal["measured", "dilated"] = "measured", profile: int = 0,
    data: Path | None = None, checkpoint_every: int = 0, resume: bool = False,
    weights: Path | None = None, export: bool = False, progress: Progress = _quiet,
) -> ran.TrainOutput:  # fmt: skip
    """Train a plan: `steps` steps in `mode`, then `profile` profiled ones, in the folder `runs/name`.

    `resume` continues there from the newest checkpoint. `weights`: a folder of safetensors to start from. `export`
    leaves a folder that transformers loads in the run's. Raises RunFailed when the run breaks.
    """
    found = read_plan(file, overrides)
    found = replace(found, setup=_reading(found.setup, data))
    if steps is not None:
        training = replace(found.setup.proposal.training, steps=steps)
        found = replace(found, setup=replace(found.setup, proposal=replace(found.setup.proposal, training=training)))
    from meshwright.trainer.launch import train as start
    from meshwright.trainer.options import Phase, TrainOptions

    phases = [Phase(mode, found.setup.proposal.training.steps)]
    if profile:
        phases.append(Phase("measured", profile, profile=True))
    options = TrainOptions(
        run=runs / (name or found.setup.name), phases=tuple(phases), checkpoint_every=checkpoint_every, resume=resume,
        weights=weights, export=export,
    )  # fmt: skip
    return train_output(start(found, options, progress))


def parity(
    files: Sequence[PathLike], overrides: Sequence[str] = (), *, steps: int = 10, progress: Progress = _quiet
) -> ran.ParityOutput:
    """Compare the training of several plans with one process."""
    from meshwright.trainer.parity import parity as compare

    plans = [read_plan(file, overrides) for file in files]
    return compare(plans, steps=steps, progress=progress)


def diagnose(
    paths: Sequence[PathLike], *, output: Path | None = None, job: PathLike | None = None, cache: bool = True,
    progress: Progress = _quiet,
) -> ran.DiagnoseOutput:  # fmt: skip
    """Diagnose a run folder, or recorded traces, tables, snapshots and logs; `job` supplies model and cluster where a
    figure needs them. A run folder gets its `findings.json`; `output` gets a copy."""
    from meshwright.diagnosis.inputs import diagnose_inputs
    from meshwright.files.run import RunFolder
    from meshwright.files.run_io import write_findings

    given = [Path(path) for path in paths]
    missing = [path for path in given if not has_magic(str(path)) and not path.exists()]
    if missing:
        raise bad_input("there is no such file or folder", file=str(missing[0]))
    target = _target(output, [path for path in given if path.exists()]) if output is not None else None
    setup = None if job is None else read_setup(job)
    one_run = len(given) == 1 and given[0].is_dir() and RunFolder(given[0]).plan.exists()
    found = diagnose_inputs(given, setup, cache=cache, progress=progress)
    if one_run:
        write_findings(found, RunFolder(given[0]).findings)
    if target is not None:
        write_findings(found, target)
    return diagnose_output(found)


def rebalance(run: PathLike, *, output: Path | None = None) -> ran.RebalanceOutput:
    """The plan of a run with its stages balanced by what the run measured."""
    from meshwright.loop.rebalance import rebalance as balance

    target = _target(output, []) if output is not None else None
    found = balance(Path(run))
    if target is not None:
        write_plan(found.after, target)
    return ran.RebalanceOutput(
        mode="predicted", before=plan_figures(found.before, runners(found.before)),
        after=plan_figures(found.after, runners(found.after)), moves=list(found.moves),
        predicted_gain=found.predicted_gain,
    )  # fmt: skip


def tune(
    file: PathLike, overrides: Sequence[str] = (), *, runs: Path = Path("runs"), name: str | None = None,
    data: Path | None = None, progress: Progress = _quiet,
) -> ran.TuneOutput:  # fmt: skip
    """The whole loop on a job."""
    setup = _reading(read_setup(file, overrides), data)
    from meshwright.cli.tuned import tune_output
    from meshwright.loop.tune import tune as loop
    from meshwright.reports.page import write_report

    found = loop(setup, runs, progress, name)
    write_report(found.folder.root, found.folder.report)
    return tune_output(found, runners)


def report(source: PathLike, *, output: Path | None = None) -> ran.ReportOutput:
    """Write the HTML page of a run folder, or of a plan."""
    from meshwright.files.run import RunFolder
    from meshwright.reports.page import write_report

    source = Path(source)
    if not source.exists():
        raise bad_input("there is no such run folder or plan", file=str(source))
    usual = RunFolder(source).report if source.is_dir() else source.with_suffix(".html")
    target = _target(output or usual, [source])
    if source.is_dir():
        write_report(source, target)
    else:
        write_report(predicted(source)[0], target)
    return ran.ReportOutput(path=str(target))


def init(file: PathLike = "job.toml", *, force: bool = False) -> out.InitOutput:
    """Write a commented job for this machine. Raises InputError when the file exists and `force` is not given."""
    from meshwright.cli.first_job import detected, first_job

    path = _target(Path(file), [])
    if path.exists() and not force:
        raise bad_input("exists already", file=str(path), legal="name another file, or give --force")
    found = detected()
    write_whole(path, first_job(found))
    return out.InitOutput(path=str(path), detected=found)
