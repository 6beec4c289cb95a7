"""`meshwright rebalance`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json, RunFolderArgument


def rebalance(
    run: RunFolderArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PLAN", help="Write the rebalanced plan here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The plan that a run's measurement asks for."""
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show
    from meshwright.reports.terminal_run import rebalance_view

    show(answers.rebalance(run, output=output), rebalance_view, as_json)
    if output is not None:
        progress(f"wrote {output}")
