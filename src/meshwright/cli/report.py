"""`meshwright report`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json


def report(
    source: Annotated[Path, typer.Argument(metavar="RUN_OR_PLAN", help="A run folder or a plan.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="PAGE", help="Left out: report.html in the run, or beside the plan."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page."""
    from meshwright.cli import answers
    from meshwright.cli.show import show
    from meshwright.reports.terminal_run import report_view

    show(answers.report(source, output=output), report_view, as_json)
