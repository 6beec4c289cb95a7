"""`meshwright memory`."""

from typing import Annotated

import typer

from meshwright.cli.options import Json, PlanFile, Resolved, Sets

Oom = Annotated[
    str | None,
    typer.Option(
        "--oom",
        metavar="SIZE",
        help="Explain a failed request: 786.00MiB, '2.38 GiB', or the whole error line of PyTorch.",
    ),
]
Traced = Annotated[
    bool, typer.Option("--traced", help="Trace the trainer's own step, without memory or peers, beside the prediction.")
]
Fit = Annotated[bool, typer.Option("--fit", help="Find the largest micro-batch, sequence and model that fit.")]


def memory(
    plan: PlanFile,
    overrides: Sets = None,
    oom: Oom = None,
    fit: Fit = False,
    traced: Traced = False,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """Every byte by stage and kind, how likely it runs out, and what would make it fit."""
    from meshwright.cli import answers
    from meshwright.cli.show import progress, show, show_resolved

    if resolved:
        return show_resolved(plan, overrides or (), as_json)
    from meshwright.reports.terminal_memory import memory_view

    answer = answers.memory(plan, overrides or (), oom=oom, fit=fit, traced=traced, progress=progress)
    show(answer, memory_view, as_json)
    no = not answer.fits if answer.oom is None else not answer.oom.matches
    if no:
        raise typer.Exit(1)
