"""`meshwright validate`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json

Rows = Annotated[
    Path,
    typer.Argument(
        metavar="ROWS.csv",
        help="Measured configurations, one a row: the columns of data/measurements, any empty.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="CSV", help="Write the predictions, row by row.")
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="PAGE", help="Draw measured against predicted, as HTML.")]

Fit = Annotated[
    Path | None,
    typer.Option(
        "--fit", metavar="MACHINE", help="Fit your machine's figures to 10 rows or more, and write a machine.toml."
    ),
]


def validate(rows: Rows, output: Output = None, plot: Plot = None, fit: Fit = None, as_json: Json = False) -> None:
    """How far can you trust the predictions? Every measured configuration of a table, predicted.

    Prints the errors of step time and memory, how well layouts are ranked, what had to be assumed, and the worst rows.
    Exit code 1 only where --fit is asked for and the rows do not give a fit that helps.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show
    from meshwright.reports.terminal_validate import validate_view

    answer = answers.validate(rows, output=output, plot=plot, fit=fit, progress=progress)
    show(answer, validate_view, as_json)
    for written in (output, plot, answer.fit and answer.fit.written):
        if written:
            progress(f"wrote {written}")
    if answer.fit is not None and answer.fit.refused:
        raise typer.Exit(1)
