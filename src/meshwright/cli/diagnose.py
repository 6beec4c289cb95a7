"""`meshwright diagnose`."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import Json


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text!r} is not a share of the step time: give 0.05 or 5%")
    return share


def _say(line: str) -> None:
    typer.echo(line, err=True)


def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="A run folder, or traces, memory snapshots, tables and logs: files, folders or globs.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write findings.json here; a run folder gets its own."),
    ] = None,
    fail_on: Annotated[
        float | None,
        typer.Option("--fail-on", metavar="SHARE", parser=_share, help="Exit 1 when a finding costs more: 0.05 or 5%."),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option("--job", metavar="JOB", help="A job that says model and cluster where figures need it."),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Read traces anew. Else large ones, unchanged since (path, size, time), come from "
            "$MESHWRIGHT_CACHE or ~/.cache/meshwright/traces.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Where the time went, why, and what to change."""
    from meshwright.cli import answers
    from meshwright.cli.show import show
    from meshwright.reports.terminal_run import diagnose_view

    answer = answers.diagnose(paths, output=output, job=job, cache=not no_cache, progress=_say)
    show(answer, diagnose_view, as_json)
    if fail_on is not None and any((finding.share or 0) > fail_on for finding in answer.findings):
        raise typer.Exit(1)
