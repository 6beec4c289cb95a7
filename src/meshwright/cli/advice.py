"""Short answers in words that are computed, not canned: what a step is made of."""

from meshwright.files.convert import prediction_of
from meshwright.files.plan import Plan


def breakdown(plan: Plan) -> str:
    """The terms of the step time above one percent, the largest first: `compute 71 %, bubble 18 %`."""
    found = prediction_of(plan)
    shares = {name: seconds / found.step_time_s for name, seconds in found.terms.items()}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in ordered if share >= 0.01)
