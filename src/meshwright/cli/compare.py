"""`meshwright compare`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Two run folders or more.", show_default=False)],
    as_json: Json = False,
) -> None:
    """What moved between runs, and whether it is beyond the spread; do several layouts train alike?"""
    from meshwright.cli.compared import compare_runs
    from meshwright.cli.show import show
    from meshwright.reports.terminal_inputs import compare_view

    show(compare_runs(runs), compare_view, as_json)
