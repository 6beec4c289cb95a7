"""Experts: how many ranks they may be spread over, and how evenly."""

from collections import Counter
from math import gcd

from meshwright.layout import predicates
from meshwright.layout.experts import spread, worst_over_mean
from meshwright.layout.problem import Explanation, Rule, count, spelled
from meshwright.layout.proposal import Proposal


def _near_degrees(p: Proposal) -> tuple[str, ...]:
    """The expert degrees next below and above that divide the experts."""
    ep = p.wanted.ep or 1
    legal = predicates.common_divisors(p.arch.experts)
    below = max((d for d in legal if d < ep), default=None)
    above = min((d for d in legal if d > ep), default=None)
    near = " or ".join(str(d) for d in (below, above) if d is not None)
    return (f"{spelled(p, 'layout.ep')} = {near}",)


def _there_hold(p: Proposal) -> bool:
    ep = p.wanted.ep or 1
    return ep == 1 or ep <= p.arch.experts


def _explain_there(p: Proposal) -> Explanation:
    ep, experts = p.wanted.ep or 1, p.arch.experts
    if not experts:
        return Explanation(
            f"{p.arch.name} has no experts to spread over {ep} ranks", (f"{spelled(p, 'layout.ep')} = 1",)
        )
    return Explanation(
        f"{experts} experts on {ep} ranks leave {count(ep - experts, 'rank')} without an expert", _near_degrees(p)
    )


def _even_hold(p: Proposal) -> bool:
    ep = p.wanted.ep or 1
    return ep == 1 or ep > p.arch.experts or p.arch.experts % ep == 0


def _explain_even(p: Proposal) -> Explanation:
    ep, experts = p.wanted.ep or 1, p.arch.experts
    held = Counter(spread(experts, ep))
    shown = " and ".join(f"{count(ranks, 'rank')} of {each}" for each, ranks in sorted(held.items(), reverse=True))
    return Explanation(
        f"{experts} experts do not divide by {ep} ranks: {experts} mod {ep} = {experts % ep}. At best {shown}: the "
        f"fullest rank has {max(held)} / {experts / ep:g} = {worst_over_mean(experts, ep):.2f}× the mean of "
        f"weights and work, and the others wait for it",
        _near_degrees(p),
    )


def _ranks_hold(p: Proposal) -> bool:
    w = p.wanted
    if w.ep is None or w.dp is None or w.cp is None or w.tp is None:
        return True
    return bool(predicates.expert_ranks_fit(w.dp, w.cp, w.tp, w.ep, w.tp if w.etp is None else w.etp))


def _explain_ranks(p: Proposal) -> Explanation:
    w = p.wanted
    dp, cp, tp, ep = w.dp or 1, w.cp or 1, w.tp or 1, w.ep or 1
    etp = tp if w.etp is None else w.etp
    ranks = dp * cp * tp
    shared = predicates.common_divisors(gcd(p.arch.experts or ep, max(1, ranks // etp)))
    return Explanation(
        f"ep {ep} · etp {etp} = {ep * etp} ranks cannot be carved out of dp {dp} · cp {cp} · tp {tp} = {ranks}",
        (f"{spelled(p, 'layout.ep')} = {', '.join(map(str, shared))}",),
    )


def _imbalance_holds(p: Proposal) -> bool:
    ep, most = p.wanted.ep, p.training.expert_imbalance
    if most <= 1:
        return True
    return p.arch.experts > 0 and (ep is None or most <= max(ep, 1))


def _explain_imbalance(p: Proposal) -> Explanation:
    field, most = spelled(p, "training.expert_imbalance"), p.training.expert_imbalance
    if not p.arch.experts:
        return Explanation(f"{p.arch.name} has no experts whose tokens could be uneven", (f"{field} = 1",))
    ep = p.wanted.ep or 1
    return Explanation(
        f"the fullest of {count(ep, 'expert rank')} cannot get {most:g}× the mean: with every token on one rank it is "
        f"{ep}×",
        (f"{field} from 1 to {ep}",),
    )


EXPERT_RULES: tuple[Rule, ...] = (
    Rule("experts-divide", "error", ("layout.ep", "model.experts"), _there_hold, _explain_there),
    Rule(
        "expert-ranks", "error", ("layout.ep", "layout.etp", "layout.dp", "layout.cp", "layout.tp"),
        _ranks_hold, _explain_ranks,
    ),
    Rule(
        "expert-imbalance", "error", ("training.expert_imbalance", "layout.ep", "model.experts"),
        _imbalance_holds, _explain_imbalance,
    ),
)  # fmt: skip
EXPERT_WASTE: tuple[Rule, ...] = (
    Rule("experts-uneven", "warning", ("layout.ep", "model.experts"), _even_hold, _explain_even),
)
