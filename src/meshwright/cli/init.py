"""`meshwright init`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json


def init(
    file: Annotated[Path, typer.Argument(metavar="[JOB]", help="Where to write it.")] = Path("job.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write a commented job for this machine."""
    from meshwright.cli import answers
    from meshwright.cli.show import show
    from meshwright.reports.terminal import init_view

    show(answers.init(file, force=force), init_view, as_json)
