"""`meshwright plan`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import JobFile, Json, Resolved, Sets


def plan(
    job: JobFile,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="PLAN", help="Write the best plan.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, max=1000, help="How many plans to rank.")] = 5,
    pareto: Annotated[bool, typer.Option("--pareto", help="The front of memory and time.")] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="What each relaxation of the job would gain.")
    ] = False,
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """The ranked plans, and why the runners-up lost."""
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show, show_resolved

    if resolved:
        return show_resolved(job, overrides or (), as_json)
    from meshwright.reports.terminal_plan import plan_view

    answer = answers.plan(job, overrides or (), top=top, output=output, pareto=pareto, sensitivity=sensitivity)
    show(answer, plan_view, as_json)
    if output is not None:
        progress(f"wrote {output}")
