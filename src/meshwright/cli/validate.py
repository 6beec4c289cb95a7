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


def validate(rows: Rows, output: Output = None, plot: Plot = None, as_json: Json = False) -> None:
    """How far can you trust the predictions? Every measured configuration of a table, predicted.

    Prints the errors of step time and memory, how well layouts are ranked, what had to be assumed, and the worst rows.
    """
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show
    from meshwright.reports.terminal_validate import validate_view

    show(answers.validate(rows, output=output, plot=plot, progress=progress), validate_view, as_json)
    for written in (output, plot):
        if written is not None:
            progress(f"wrote {written}")
