"""`meshwright tune`."""

from pathlib import Path

from meshwright.cli.options import Data, JobFile, Json, Resolved, RunName, Runs, Sets


def tune(
    job: JobFile,
    name: RunName = None,
    runs: Runs = Path("runs"),
    data: Data = None,
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """The whole loop: plan, train, diagnose, change, verify.

    It ends when the next change is predicted to gain less than the noise.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show, show_resolved

    if resolved:
        return show_resolved(job, overrides or (), as_json)
    from meshwright.reports.terminal_tune import tune_view

    show(answers.tune(job, overrides or (), runs=runs, name=name, data=data, progress=progress), tune_view, as_json)
