"""`meshwright why`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json, PlanFile, Resolved, Sets


def why(
    first: PlanFile,
    second: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan to compare with.", show_default=False)],
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """Two plans, term by term.

    Where one wins the time that the other loses. --set applies to both.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import show, show_resolved

    if resolved:
        return show_resolved(first, overrides or (), as_json)
    from meshwright.reports.terminal_plan import why_view

    show(answers.why(first, second, overrides or ()), why_view, as_json)
