"""`meshwright parity`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json, Resolved, Sets


def parity(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="The plans to prove.", show_default=False)],
    steps: Annotated[int, typer.Option("--steps", min=1, max=10_000, help="Steps to compare.")] = 10,
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """Prove that layouts train as one process does.

    On your own model. Exit code 1 when they do not.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show, show_resolved

    if resolved:
        return show_resolved(plans[0], overrides or (), as_json)
    from meshwright.reports.terminal_run import parity_view

    answer = answers.parity(plans, overrides or (), steps=steps, progress=progress)
    show(answer, parity_view, as_json)
    if not answer.equal:
        raise typer.Exit(1)
