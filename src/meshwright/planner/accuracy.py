"""How far predictions are from measurements. A configuration that was measured several times counts once.

An error is the predicted figure over the measured one, less 1: positive where too much was predicted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.planner.rows_stack import year_month
from meshwright.planner.validate import Judged

ErrorOf = Callable[[Judged], float | None]
KeyOf = Callable[[Judged], str]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of `configurations`, measured in `rows` rows; shares of the measured figure. `median`, `p90` and `worst`
    are sizes, `bias` is the median with its sign. `within`: share of measured step times in the predicted range."""

    rows: int
    configurations: int
    median: float | None
    p90: float | None
    bias: float | None
    worst: float | None
    within: float | None


def step_error(one: Judged) -> float | None:
    """Of the step time."""
    return one.step_error


def memory_error(one: Judged) -> float | None:
    """Of the peak memory."""
    return one.memory_error


def once_each(judged: Iterable[Judged], error_of: ErrorOf) -> list[Judged]:
    """One row for each configuration that has such an error: the latest measurement; of several of that date the one
    with the middle error (the smaller of two)."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        if error_of(one) is not None:
            groups.setdefault(one.row.config_group or f"line {one.row.line}", []).append(one)
    return [_latest(group, error_of) for group in groups.values()]


def _latest(group: Sequence[Judged], error_of: ErrorOf) -> Judged:
    date = max(_date(one) for one in group)
    last = sorted((one for one in group if _date(one) == date), key=lambda one: error_of(one) or 0.0)
    return last[(len(last) - 1) // 2]


def _date(one: Judged) -> tuple[tuple[int, int], str]:
    """Year and month, then the text as it stands: versions of a month differ behind it."""
    return year_month(one.row.date) or (0, 0), one.row.date


def errors(judged: Sequence[Judged], error_of: ErrorOf) -> Errors:
    """The errors of all these rows; figures are None without any."""
    rows = sum(error_of(one) is not None for one in judged)
    chosen = once_each(judged, error_of)
    if not chosen:
        return Errors(rows, 0, None, None, None, None, None)
    signed = np.array([error_of(one) for one in chosen], dtype=np.float64)
    sizes = np.abs(signed)
    within = None if error_of is not step_error else float(np.mean([bool(one.in_range) for one in chosen]))
    return Errors(
        rows, len(chosen), float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(np.median(signed)),
        float(sizes.max()), within,
    )  # fmt: skip


def errors_by(judged: Sequence[Judged], key_of: KeyOf, error_of: ErrorOf) -> dict[str, Errors]:
    """The errors by some property, most configurations first; only values that have any."""
    parts: dict[str, list[Judged]] = {}
    for one in judged:
        parts.setdefault(key_of(one), []).append(one)
    found = {key: errors(part, error_of) for key, part in parts.items()}
    ordered = sorted(found.items(), key=lambda item: (-item[1].configurations, item[0]))
    return {key: each for key, each in ordered if each.configurations}


def source_of(one: Judged) -> str:
    """A source without the place in it: the repository, the paper's name and number, or the text as it stands."""
    text = one.row.source
    if text.startswith("github:"):
        return text.removeprefix("github:").split()[0].split("@")[0]
    words = text.split(" (")[0].split(",")[0].split()
    arxiv = next((index for index, word in enumerate(words) if word == "arXiv"), None)
    return " ".join(words if arxiv is None else words[: arxiv + 2]) or "not stated"


def gpu_of(one: Judged) -> str:
    """The device that was predicted, by its name in the catalogue."""
    return one.plan.setup.proposal.cluster.device.name


def trust_of(one: Judged) -> str:
    """What the table says of how far the row itself can be trusted."""
    return one.row.trust or "not stated"


def parallelism_of(one: Judged) -> str:
    """The kinds of parallelism that a row combines: `data + tensor`; sharded data parallelism (ZeRO-3) by itself."""
    layout = one.plan.layout
    kinds = {
        "sharded data": layout.dp > 1 and layout.zero == 3,
        "data": layout.dp > 1 and layout.zero != 3,
        "tensor": layout.tp > 1,
        "pipeline": layout.pp > 1,
        "context": layout.cp > 1,
        "expert": layout.ep > 1,
    }
    return " + ".join(name for name, there in kinds.items() if there) or "one device"


def assumptions(judged: Iterable[Judged]) -> Mapping[str, int]:
    """What had to be assumed, and for how many rows; the most frequent first."""
    counts = Counter(assumption for one in judged for assumption in one.assumed)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def worst(judged: Iterable[Judged], error_of: ErrorOf, count: int) -> list[Judged]:
    """The configurations that are predicted worst."""
    return sorted(once_each(judged, error_of), key=lambda one: -abs(error_of(one) or 0.0))[:count]
