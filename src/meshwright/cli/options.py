"""Options and arguments that several verbs share, spelled once."""

from pathlib import Path
from typing import Annotated

import typer


def _run_name(text: str) -> str:
    if not text.strip() or Path(text).name != text or text == "..":
        raise typer.BadParameter(f"{text!r} is not the name of a run folder: no slashes; --runs says where it lies")
    return text


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else there.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file: --set layout.tp=4. Repeatable."),
]
Resolved = Annotated[
    bool, typer.Option("--print-resolved", help="Show every value with its origin (user, file, default, detected).")
]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder that holds the run folders.")]
RunName = Annotated[str | None, typer.Option("--run", metavar="NAME", parser=_run_name, help="Name of the run folder.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="PATH", help="A file or folder of text, or JSON lines, to train on.")
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="A job.toml.", show_default=False)]
PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A plan.toml, or a job whose layout is complete.", show_default=False)
]
RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
