"""A rule, and the problem it finds: one rule, one predicate, one message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from meshwright.layout.proposal import Proposal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a rule is broken: the arithmetic, and the legal values next to what was asked."""

    message: str
    legal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """`holds` is cheap and says yes while what it needs is still free; `explain` is asked only when it says no."""

    name: str
    severity: Severity
    fields: tuple[str, ...]
    holds: Callable[[Proposal], bool]
    explain: Callable[[Proposal], Explanation]


@dataclass(frozen=True, slots=True)
class Problem:
    """What one rule has to say about a proposal. `fields` are spelled as the user wrote them."""

    rule: str
    severity: Severity
    fields: tuple[str, ...]
    message: str
    legal: tuple[str, ...] = ()

    def __str__(self) -> str:
        hint = f"; legal: {'; '.join(self.legal)}" if self.legal else ""
        return f"{self.severity} [{self.rule}] {', '.join(self.fields)}: {self.message}{hint}"


def spelled(proposal: Proposal, field: str) -> str:
    """The field as the user's file spells it ("--tensor-model-parallel-size"), or its own name."""
    return proposal.written[field][0] if field in proposal.written else field


def origin_note(proposal: Proposal, field: str) -> str:
    """` (detected on this machine)` or ` (default)` for a value that nobody typed; empty otherwise."""
    origin = proposal.written[field][1] if field in proposal.written else "user"
    return {"detected": " (detected on this machine)", "default": " (default)"}.get(origin, "")


def count(number: int, noun: str) -> str:
    """`1 micro-batch`, `4 micro-batches`, `2 samples`."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{number} {noun if number == 1 else plural}"


def problem_of(rule: Rule, proposal: Proposal) -> Problem:
    """The problem of a rule that the proposal breaks. Where some of its fields were typed, only those are named."""
    found = rule.explain(proposal)
    typed = [field for field in rule.fields if proposal.written.get(field, ("", "default"))[1] != "default"]
    fields = tuple(spelled(proposal, field) for field in (typed or rule.fields))
    return Problem(rule.name, rule.severity, fields, found.message, found.legal)
