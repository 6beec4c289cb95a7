"""The verbs as functions: each takes what its command line takes and returns the object that `--json` prints.

Errors are exceptions: `InputError` (exit code 2 of the command line), `AnswerIsNo` (1) and `RunFailed` (3) of
`meshwright.basics.errors`. `overrides` are texts such as "layout.tp=4".
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from meshwright.cli import answers

PathLike = Path | str
Progress = Callable[[str], None]


def _object(answer: BaseModel) -> dict[str, Any]:
    """The answer as JSON reads it back."""
    data: dict[str, Any] = json.loads(answer.model_dump_json(by_alias=True))
    return data


def _quiet(line: str) -> None:
    """Progress that nobody reads."""


def check(file: PathLike, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Is this job or plan valid, and what is wasteful about it?"""
    return _object(answers.check(file, overrides))


def memory(
    plan: PathLike, *, oom: str | None = None, fit: bool = False, traced: bool = False, progress: Progress = _quiet,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Every byte by stage and kind, in GiB, and what would make it fit; `oom`: a failed request to explain, a size or
    a whole error line; `fit`: the largest micro-batch, sequence and model that fit; `traced`: what the
    trainer's own step holds, beside the prediction."""
    return _object(answers.memory(plan, overrides, oom=oom, fit=fit, traced=traced, progress=progress))


def plan(
    job: PathLike, *, top: int = 5, output: Path | None = None, pareto: bool = False, sensitivity: bool = False,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The ranked plans; the best one is written to `output`. `pareto` adds the front of memory and time, `sensitivity`
    what each relaxation of the job would gain."""
    return _object(answers.plan(job, overrides, top=top, output=output, pareto=pareto, sensitivity=sensitivity))


def predict(
    plan: PathLike, *, tokens: str | None = None, price: float | None = None, buckets: bool = False,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The figures of one plan; `tokens` ("300B"): and the days, GPU-hours, energy and, at `price` a GPU-hour, cost;
    `buckets`: sizes of the gradient exchange's buckets against each other."""
    return _object(answers.predict(plan, overrides, tokens=tokens, price=price, buckets=buckets))


def why(first: PathLike, second: PathLike, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Two plans term by term."""
    return _object(answers.why(first, second, overrides))


def validate(
    rows: PathLike, *, output: Path | None = None, plot: Path | None = None, fit: Path | None = None,
    progress: Progress = _quiet,
) -> dict[str, Any]:  # fmt: skip
    """Every measured configuration of a table, predicted; `output` gets the predictions as CSV, `plot` a page, `fit` a
    machine.toml of your machine's figures where fitting them to the rows helps."""
    return _object(answers.validate(rows, output=output, plot=plot, fit=fit, progress=progress))


def train(
    plan: PathLike, *, runs: Path = Path("runs"), run: str | None = None, steps: int | None = None,
    mode: Literal["measured", "dilated"] = "measured", profile: int = 0, data: Path | None = None,
    checkpoint_every: int = 0, resume: bool = False,
    weights: Path | None = None, export: bool = False, progress: Progress = _quiet, overrides: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Train a plan on local processes; its folder is `runs/run`."""
    return _object(
        answers.train(
            plan, overrides, runs=runs, name=run, steps=steps, mode=mode, profile=profile, data=data,
            checkpoint_every=checkpoint_every, resume=resume, weights=weights, export=export, progress=progress,
        )
    )  # fmt: skip


def parity(
    plans: Sequence[PathLike], *, steps: int = 10, progress: Progress = _quiet, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Do the plans train as one process does?"""
    return _object(answers.parity(plans, overrides, steps=steps, progress=progress))


def diagnose(paths: Sequence[PathLike], *, output: Path | None = None, job: PathLike | None = None) -> dict[str, Any]:
    """Where the time of a run or of recorded traces went, why, and what to change."""
    return _object(answers.diagnose(paths, output=output, job=job))


def compare(runs: Sequence[PathLike]) -> dict[str, Any]:
    """What moved between runs, and whether it is beyond the spread."""
    from meshwright.cli.compared import compare_runs

    return _object(compare_runs([Path(run) for run in runs]))


def rebalance(run: PathLike, *, output: Path | None = None) -> dict[str, Any]:
    """The plan that a run's measurement asks for; written to `output`."""
    return _object(answers.rebalance(run, output=output))


def tune(
    job: PathLike, *, runs: Path = Path("runs"), run: str | None = None, progress: Progress = _quiet,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The whole loop on a job."""
    return _object(answers.tune(job, overrides, runs=runs, name=run, progress=progress))


def report(source: PathLike, *, output: Path | None = None) -> dict[str, Any]:
    """Write the HTML page of a run folder or a plan."""
    return _object(answers.report(source, output=output))


def init(file: PathLike = "job.toml", *, force: bool = False) -> dict[str, Any]:
    """Write a commented job for this machine."""
    return _object(answers.init(file, force=force))
