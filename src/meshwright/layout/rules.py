"""The rules a layout has to keep, and what is wasteful about one that keeps them. One place for planner, trainer, check
and importers: `judge` says everything that is to be said, `legal` only whether a layout can run at all."""

from meshwright.layout.problem import Problem, Rule, problem_of
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules_batch import BATCH_RULES
from meshwright.layout.rules_claims import CLAIM_RULES
from meshwright.layout.rules_degrees import DEGREE_RULES, POSITIVE
from meshwright.layout.rules_effect import EFFECT_RULES
from meshwright.layout.rules_experts import EXPERT_RULES, EXPERT_WASTE
from meshwright.layout.rules_pipeline import PIPELINE_RULES
from meshwright.layout.rules_recipe import RECIPE_RULES
from meshwright.layout.rules_shapes import SHAPE_RULES
from meshwright.layout.rules_sharding import SHARDING_RULES, SHARDING_WASTE
from meshwright.layout.rules_stages import FIT_RULES, STAGE_RULES
from meshwright.layout.rules_waste import WASTE_RULES

__all__ = ["LEGALITY", "RULES", "Problem", "Rule", "judge", "legal"]

LEGALITY: tuple[Rule, ...] = (
    *DEGREE_RULES, *EXPERT_RULES, *SHARDING_RULES, *RECIPE_RULES, *BATCH_RULES, *PIPELINE_RULES,
)  # fmt: skip
"""Whatever breaks one of these cannot run, on however much memory."""

RULES: tuple[Rule, ...] = (
    *LEGALITY, *FIT_RULES, *WASTE_RULES, *SHARDING_WASTE, *EXPERT_WASTE, *SHAPE_RULES, *STAGE_RULES, *EFFECT_RULES,
    *CLAIM_RULES,
)  # fmt: skip
"""All of them: errors, then warnings."""

_CHECKS = tuple(rule.holds for rule in LEGALITY)


def judge(proposal: Proposal) -> tuple[Problem, ...]:
    """Every problem of a proposal, errors first: which rule, the fields as they were written, the arithmetic and the
    legal values nearest by. Free parts are never a problem; a sound plan gives an empty tuple."""
    if not POSITIVE.holds(proposal):  # nothing divides by what is not there
        return (problem_of(POSITIVE, proposal),)
    return tuple(problem_of(rule, proposal) for rule in RULES if not rule.holds(proposal))


def legal(proposal: Proposal) -> bool:
    """Can it run at all? True when no rule of `LEGALITY` is broken; memory is the predictor's question. Cheap: it
    builds no message, so a planner may ask it for every candidate."""
    return all(holds(proposal) for holds in _CHECKS)
