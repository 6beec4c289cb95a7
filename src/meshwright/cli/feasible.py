"""Can what is asked be run at all, by the framework that the job names, in the memory that there is? Predicted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from meshwright.basics.errors import AnswerIsNo, InputError
from meshwright.basics.quantities import GIB, gib
from meshwright.files.plan import Plan
from meshwright.files.prediction import DOES_NOT_FIT, IMPOSSIBLE, StageMemory
from meshwright.files.setup import Runner, Setup
from meshwright.layout.degrees import describe
from meshwright.layout.given import DEGREES, asked_degrees, settled
from meshwright.layout.problem import Explanation, Problem, Severity, problem_about

_MOST = 3  # changes that are listed


def infeasible(setup: Setup, file: Path | str, overrides: Sequence[str] = ()) -> tuple[Problem, ...]:
    """What stands against a job that breaks no rule and whose degrees are fixed; empty while they are open. `setup` is
    what `file` and `overrides` say.

    `runnable-by`, a warning: the named framework cannot run it. `does-not-fit`: whatever is still open, memory is not
    enough; an error where running out is all but certain (9 in 10), else a warning. What no known framework can run is
    judged as `memory` does, where the file leaves nothing but the stages open.
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
    plan = _as_stated(file, overrides) if least is None else None if least.fits else Bench(setup).exact(least)
    if plan is None:
        return tuple(found)
    assert plan.prediction is not None
    fullest = max(plan.prediction.memory, key=lambda rank: (rank.p_oom or 0.0, rank.total))
    chance = 1.0 if fullest.p_oom is None else fullest.p_oom
    if chance < DOES_NOT_FIT:
        return tuple(found)
    limit = setup.proposal.cluster.memory_bytes / GIB
    about = f"{describe(plan.layout)}, micro-batch {plan.batch.micro_batch}"
    message = (
        f"{about}: predicted to need {_need(fullest)} on the fullest rank, of {limit:.2f} GiB; it runs out of "
        f"memory with a probability of {chance:.0%}"
    )
    severity: Severity = "error" if chance >= IMPOSSIBLE else "warning"
    fields = ("cluster.memory_gib", *(f"layout.{name}" for name in DEGREES), "layout.zero", "batch.micro_batch")
    said = Explanation(message, _remedies(plan))
    return (*found, problem_about(setup.proposal, "does-not-fit", severity, fields, said))


def _need(rank: StageMemory) -> str:
    """`52.10 GiB (activations 30.20 GiB, optimizer 9.00 GiB)`: with the largest parts."""
    parts = sorted(((size, kind) for kind, size in rank.parts.items()), reverse=True)
    return f"{gib(rank.total)} ({', '.join(f'{kind} {gib(size)}' for size, kind in parts[:2])})"


def _as_stated(file: Path | str, overrides: Sequence[str]) -> Plan | None:
    """The plan as the file states it, with its prediction; None where more than the stages is open."""
    from meshwright.cli.completed import predicted

    try:
        return predicted(file, overrides)[0]
    except (InputError, AnswerIsNo):
        return None


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
