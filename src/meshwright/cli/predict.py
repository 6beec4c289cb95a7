"""`meshwright predict`."""

from typing import Annotated

import typer

from meshwright.cli.options import Json, PlanFile, Resolved, Sets


def predict(
    plan: PlanFile,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="COUNT", help="Days, GPU-hours and energy of so many: 300B.")
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="PER_HOUR", help="Price of a GPU-hour, for --tokens.")
    ] = None,
    buckets: Annotated[
        bool, typer.Option("--buckets", help="Sizes of the gradient exchange's buckets against each other.")
    ] = False,
    overrides: Sets = None,
    as_json: Json = False,
    resolved: Resolved = False,
) -> None:
    """The figures of one plan: time, memory, and their parts."""
    from meshwright.cli import answers
    from meshwright.cli.show import show, show_resolved

    if resolved:
        return show_resolved(plan, overrides or (), as_json)
    from meshwright.reports.terminal_plan import predict_view

    show(answers.predict(plan, overrides or (), tokens=tokens, price=price, buckets=buckets), predict_view, as_json)
