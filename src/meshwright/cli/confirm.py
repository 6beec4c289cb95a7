"""Warnings about waste against the prediction: a rule estimates, the predictor decides whether there is a gain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.basics.errors import AnswerIsNo, InputError
from meshwright.basics.quantities import seconds_text
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.alternatives import ALTERNATIVES
from meshwright.layout.degrees import describe
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import Wanted
from meshwright.layout.thresholds import WORTH

_FACTS = frozenset(("few-micro-batches",))  # said with a figure even where this batch leaves no better choice
EDGE = 0.1
"""A plan that runs out of memory more often is at the edge of it."""
_FEW = 8  # ranked plans among which a remedy is looked for


def fastest(setup: Setup, wanted: Wanted) -> Plan | None:
    """The fastest plan with these parts fixed; None when nothing of the kind runs or fits."""
    from meshwright.planner.rank import plan as rank

    try:
        return rank(replace(setup, proposal=replace(setup.proposal, wanted=wanted)), top=1).plans[0]
    except (AnswerIsNo, InputError):
        return None


def surest(setup: Setup, wanted: Wanted) -> Plan | None:
    """The fastest of the best few that does not stand at the edge of its memory: what runs out is no remedy."""
    from meshwright.planner.rank import plan as rank

    try:
        found = rank(replace(setup, proposal=replace(setup.proposal, wanted=wanted)), top=_FEW).plans
    except (AnswerIsNo, InputError):
        return None
    return next((plan for plan in found if chance_of(plan) < EDGE), None)


def chance_of(plan: Plan) -> float:
    """The probability that a predicted plan runs out of memory, of the rank most likely to."""
    assert plan.prediction is not None
    return max((rank.p_oom for rank in plan.prediction.memory if rank.p_oom is not None), default=0.0)


def _step_s(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.step_time_s


def confirmed(setup: Setup, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The problems without those warnings whose remedy is not predicted to save 3 % of the step, in the hands of the
    framework that the job names (any, where that one cannot run what is asked). Those that stay say what is gained.
    Where something is an error, or not enough is fixed to tell, all of them stay as they are."""
    doubtful = [problem for problem in problems if problem.rule in ALTERNATIVES]
    if not doubtful or any(problem.severity == "error" for problem in problems):
        return tuple(problems)
    asked = fastest(setup, setup.proposal.wanted)
    if asked is None:
        setup = replace(setup, runnable_by="any")
        asked = fastest(setup, setup.proposal.wanted)
    return tuple(problems) if asked is None else tuple(_judged(setup, problems, asked))


def _judged(setup: Setup, problems: Sequence[Problem], asked: Plan) -> Iterator[Problem]:
    for problem in problems:
        if problem.rule not in ALTERNATIVES:
            yield problem
            continue
        tried = (surest(setup, wanted) for wanted in ALTERNATIVES[problem.rule](setup.proposal))
        now = _step_s(asked)
        faster = (plan for plan in tried if plan is not None and _step_s(plan) <= now * (1 - WORTH))
        better = next(faster, None)
        if better is not None:
            best, shown = _step_s(better), describe(better.layout)
            gain = f"{seconds_text(best)} a step instead of {seconds_text(now)} ({1 - best / now:.0%} less)"
            yield replace(problem, message=f"{problem.message}. Predicted without it: {gain}, with {shown}")
        elif problem.rule in _FACTS:
            reason = "nothing that this global batch allows on such degrees is predicted to be faster"
            yield replace(problem, message=f"{problem.message}; {reason}")
