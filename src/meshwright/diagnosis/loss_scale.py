"""Skipped steps of fp16 in a log: harmless, or a loss scale that falls to the floor."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from meshwright.diagnosis.said import Said, counted
from meshwright.files.findings import Finding
from meshwright.traces.hangs import lines_of

FLOOR = 1.0
"""A dynamic loss scale does not fall below it: from here on every overflow is a lost step."""

IN_A_ROW = 20
"""Steps skipped one after the other that mean divergence: from 2^16, sixteen halvings reach the floor."""

_STEP = re.compile(r"(?:step|iter(?:ation)?)\D{0,4}(\d{1,9})", re.IGNORECASE)
_SCALE = re.compile(
    r"(?:loss[ _]?scale|scale)[^\d\n]{0,40}?(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"(?:\s*(?:,?\s*reducing to|,?\s*(?:down )?to|->)\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))?",
    re.IGNORECASE,
)
_OVERFLOW = ("overflow", "skipped", "skipping", "inf or nan", "nonfinite", "non-finite")
_GROUP = re.compile(r"(?:param(?:eter)?[ _]?group|unit|layer|in)\s+([\w.\[\]-]{1,60}\.[\w.\[\]-]{1,60}|\d{1,4})")


@dataclass(frozen=True, slots=True)
class Skip:
    """One skipped step and the loss scale after it."""

    step: int
    scale: float | None
    where: str


def skips_of(lines: Iterable[str]) -> tuple[tuple[Skip, ...], int]:
    """The skipped steps that a log tells of, and the last step it mentions. A line without a number of its own belongs
    to the step after the last one that was mentioned before it."""
    found: dict[int, Skip] = {}
    mentioned = ""  # the last line that names a step and tells of no skip: its number is only sought when needed
    last = 0
    for line in lines:
        lower = line.lower()
        if not any(word in lower for word in _OVERFLOW):
            if "step" in lower or "iter" in lower:
                mentioned = line
            continue
        step, scale = _STEP.search(line), _SCALE.search(line)
        if step is None and scale is None:
            continue
        last = max(last, _step(mentioned))
        at = int(step.group(1)) if step else last + 1
        where = _GROUP.search(line)
        found.setdefault(at, Skip(at, _number(scale) if scale else None, where.group(1) if where else ""))
        last = max(last, at)
    return tuple(found[at] for at in sorted(found)), max(last, _step(mentioned))


def _step(line: str) -> int:
    step = _STEP.search(line)
    return int(step.group(1)) if step else 0


def _number(scale: re.Match[str]) -> float | None:
    try:
        return float(scale.group(2) or scale.group(1))
    except ValueError:
        return None


def judge_loss_scale(paths: Sequence[Path]) -> Said:
    """What the skipped steps of each log mean: a note where they are harmless, a finding where training diverges."""
    tables: dict[str, object] = {}
    findings, notes = [], []
    for path in paths:
        skips, last = skips_of(lines_of(path))
        if not skips:
            continue
        longest, start = _longest(skips)
        scales = [skip.scale for skip in skips if skip.scale is not None]
        lowest = min(scales, default=None)
        bad = longest >= IN_A_ROW or (lowest is not None and lowest <= FLOOR)
        verdict = "diverging" if bad else "harmless" if last > skips[-1].step else "unsettled"
        tables[str(path)] = {
            "verdict": verdict, "skipped": len(skips), "steps": last, "longest_row": longest, "lowest_scale": lowest,
            "first_skipped": skips[0].step, "row_began": start,
        }  # fmt: skip
        if bad:
            findings.append(_diverging(path, skips, longest, start, lowest))
        elif verdict == "harmless":
            notes.append(
                f"{path.name}: {len(skips)} of {last} steps were skipped, at most {longest} in a row, and the loss "
                "scale found its size: harmless"
            )
        else:
            notes.append(f"{path.name}: the log ends in skipped steps, {longest} in a row: too early to say")
    return Said(counted(len(tables), "log") + " of a loss scale" if tables else "", tables=tables,
                findings=tuple(findings), abstained=tuple(notes))  # fmt: skip


def _longest(skips: Sequence[Skip]) -> tuple[int, int]:
    """The longest row of skipped steps and the step it began with."""
    best = row = 1
    began = start = skips[0].step
    for before, skip in pairwise(skips):
        row, start = (row + 1, start) if skip.step == before.step + 1 else (1, skip.step)
        if row > best:
            best, began = row, start
    return best, began


def _diverging(path: Path, skips: Sequence[Skip], longest: int, start: int, lowest: float | None) -> Finding:
    where = next((skip.where for skip in skips if skip.step >= start and skip.where), "")
    floor = f"the loss scale fell to {lowest:g}" if lowest is not None else "the loss scale kept falling"
    return Finding(
        kind="loss scale at the floor",
        ranks=(),
        stages=(),
        cause=(
            f"{floor}, {longest} steps in a row were skipped from step {start} on"
            + (f", first in {where}" if where else "")
            + ": gradients overflow fp16 whatever the scale, and training has stopped"
        ),
        evidence={
            "file": str(path), "skipped": len(skips), "row": longest, "first_bad_step": start, "lowest_scale": lowest,
            "where": where,
        },
        cost_s_per_step=None,
        share=1.0,
        confidence="high",
        change={"training.precision": "bf16"},
        predicted_gain=None,
        verify="continue in bf16 from a checkpoint before that step; the loss must go on as it was",
    )  # fmt: skip
