"""What one kind of input adds to a diagnosis."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.files.findings import Finding, RankSplit


@dataclass(frozen=True, slots=True)
class Said:
    """Figures by the path of the input, findings, and what could not be said. `window` names what was looked at."""

    window: str
    tables: Mapping[str, object] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    abstained: tuple[str, ...] = ()
    memory: Mapping[str, object] = field(default_factory=dict)
    ranks: tuple[RankSplit, ...] = ()
    bubble: Mapping[str, object] = field(default_factory=dict)
    step_time_s: float | None = None


def counted(number: int, noun: str) -> str:
    """`1 log`, `3 logs`."""
    return f"{number} {noun}{'s' if number != 1 else ''}"
