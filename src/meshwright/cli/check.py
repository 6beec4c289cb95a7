"""`meshwright check`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json, Resolved, Sets


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job.toml or plan.toml.", show_default=False)],
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """Is this job or plan valid, and what is wasteful about it?"""
    from meshwright.cli import answers
    from meshwright.cli.show import show, show_resolved

    if resolved:
        return show_resolved(file, overrides or (), as_json)
    from meshwright.reports.terminal import check_view

    answer = answers.check(file, overrides or ())
    show(answer, check_view, as_json)
    if not answer.valid:
        raise typer.Exit(1)
