"""Can what is asked be run at all, by the framework that the job names, in the memory that there is? Predicted."""

from dataclasses import replace
from typing import get_args

from meshwright.basics.quantities import GIB
from meshwright.files.plan import Plan
from meshwright.files.prediction import DOES_NOT_FIT, IMPOSSIBLE
from meshwright.files.setup import Runner, Setup
from meshwright.layout.degrees import describe
from meshwright.layout.given import DEGREES, asked_degrees, settled
from meshwright.layout.problem import Explanation, Problem, Severity, problem_about

_MOST = 3  # changes that are listed


def infeasible(setup: Setup) -> tuple[Problem, ...]:
    """What stands against a job that breaks no rule and whose degrees are fixed; empty while they are open.

    `runnable-by`, a warning: the named framework cannot run it. `does-not-fit`: whatever is still open, memory is not
    enough; an error where running out is all but certain (9 in 10), else a warning.
    """
    if len(asked_degrees(settled(setup.proposal))) < len(DEGREES):
        return ()
    from meshwright.planner.candidates import Bench
    from meshwright.planner.nothing_fits import leanest_of

    found: list[Problem] = []
    least = leanest_of(setup)
    if least is None:
        found += _refused(setup)
        setup = replace(setup, runnable_by="any")
        least = leanest_of(setup)
    if least is None or least.fits:
        return tuple(found)
    plan = Bench(setup).exact(least)
    assert plan.prediction is not None
    chance = max((rank.p_oom for rank in plan.prediction.memory if rank.p_oom is not None), default=1.0)
    if chance < DOES_NOT_FIT:
        return tuple(found)
    limit = setup.proposal.cluster.memory_bytes / GIB
    about = f"{describe(plan.layout)}, micro-batch {plan.batch.micro_batch}"
    message = (
        f"{about}: predicted to need {least.memory_text()} on the fullest rank, of {limit:.2f} GiB; it runs out of "
        f"memory with a probability of {chance:.0%}"
    )
    severity: Severity = "error" if chance >= IMPOSSIBLE else "warning"
    fields = ("cluster.memory_gib", *(f"layout.{name}" for name in DEGREES), "layout.zero", "batch.micro_batch")
    said = Explanation(message, _remedies(plan))
    return (*found, problem_about(setup.proposal, "does-not-fit", severity, fields, said))


def _remedies(plan: Plan) -> tuple[str, ...]:
    from meshwright.planner.relief import reliefs

    fitting = [one for one in reliefs(plan) if one.after.verdict != "does not fit"]
    return tuple(
        f"{one.change.label}: {one.after.fullest.total / GIB:.2f} GiB, {one.after.verdict}" for one in fitting[:_MOST]
    )


def _refused(setup: Setup) -> tuple[Problem, ...]:
    """Why the framework that the job names cannot run it, and who can."""
    from meshwright.planner.space import space

    rejected = space(setup).rejected
    reasons = list(dict.fromkeys(one.reason for one in rejected if not one.reason.startswith("[")))
    others = [
        name for name in get_args(Runner)
        if name not in ("any", setup.runnable_by) and space(replace(setup, runnable_by=name)).families
    ]  # fmt: skip
    if not reasons:
        return ()
    field = "search.runnable_by"
    nobody = f"none of the frameworks that are known here can run this: {'; '.join(reasons)}"
    said = Explanation(nobody, tuple(f"{field} = {name}" for name in others))
    if setup.runnable_by != "any":
        said = replace(said, message="; ".join(reasons))
    return (problem_about(setup.proposal, "runnable-by", "warning", (field,), said),)
