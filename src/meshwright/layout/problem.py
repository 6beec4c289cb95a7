"""A rule, and the problem it finds: one rule, one predicate, one message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from meshwright.basics.figures import ValueOrigin
from meshwright.layout.proposal import Proposal, Wanted

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
    origins: tuple[ValueOrigin, ...] = ()  # where the value of each field comes from

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


def origin_of(proposal: Proposal, field: str) -> ValueOrigin:
    """Where the value of a field comes from."""
    return proposal.written[field][1] if field in proposal.written else "default"


def _is_open(proposal: Proposal, field: str) -> bool:
    """Is that a part of the layout or of the batch that nobody has fixed?"""
    table, _, key = field.partition(".")
    return table in ("layout", "batch") and key in Wanted.__slots__ and getattr(proposal.wanted, key) is None


def problem_about(
    proposal: Proposal, name: str, severity: Severity, concerned: Sequence[str], found: Explanation
) -> Problem:
    """A problem with its fields spelled and their origins. Those are named that have a value, typed or not; all of them
    where none was typed."""
    named = [field for field in concerned if not _is_open(proposal, field)]
    if not any(origin_of(proposal, field) == "user" for field in named):
        named = list(concerned)
    fields = tuple(spelled(proposal, field) for field in named)
    origins = tuple(origin_of(proposal, field) for field in named)
    return Problem(name, severity, fields, found.message, found.legal, origins)


def problem_of(rule: Rule, proposal: Proposal) -> Problem:
    """The problem of a rule that the proposal breaks."""
    return problem_about(proposal, rule.name, rule.severity, rule.fields, rule.explain(proposal))
