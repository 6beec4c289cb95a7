"""`meshwright predict`."""

from meshwright.cli.options import Json, PlanFile, Resolved, Sets


def predict(plan: PlanFile, overrides: Sets = None, as_json: Json = False, resolved: Resolved = False) -> None:
    """The figures of one plan: time, memory, and their parts."""
    from meshwright.cli import answers
    from meshwright.cli.show import show, show_resolved

    if resolved:
        return show_resolved(plan, overrides or (), as_json)
    from meshwright.reports.terminal import predict_view

    show(answers.predict(plan, overrides or ()), predict_view, as_json)
