"""`meshwright memory`."""

import typer

from meshwright.cli.options import Json, PlanFile, Resolved, Sets


def memory(plan: PlanFile, overrides: Sets = None, as_json: Json = False, resolved: Resolved = False) -> None:
    """Every byte by stage and kind, and what would make it less."""
    from meshwright.cli import answers
    from meshwright.cli.show import show, show_resolved

    if resolved:
        return show_resolved(plan, overrides or (), as_json)
    from meshwright.reports.terminal import memory_view

    answer = answers.memory(plan, overrides or ())
    show(answer, memory_view, as_json)
    if not answer.fits:
        raise typer.Exit(1)
