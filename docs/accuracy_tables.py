"""The tables of docs/accuracy.md, from what `validate --json` says: a function a table, each returning Markdown."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Answer = Mapping[str, Any]

_TERMS = 3  # of the largest, that are shown for a row
_WORST, _OF_A_SOURCE = 14, 2
_ASSUMPTIONS = 20


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Words in the first column, figures in the others."""
    lines = [" | ".join(head), " | ".join(["---", *("---:" for _ in head[1:])])]
    lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _share(value: float | None, form: str = ".1f") -> str:
    return "" if value is None else f"{value * 100:{form}} %"


def _errors(named: Iterable[tuple[str, Answer]], ranges: bool = True) -> str:
    head = ["", "configurations", "median error", "p90", "bias", *(["in the range"] if ranges else [])]
    rows = []
    for name, found in named:
        row = [
            name, str(found["configurations"]), _share(found["median_error"]), _share(found["p90_error"]),
            _share(found["bias"], "+.1f"),
        ]  # fmt: skip
        rows.append([*row, _share(found["within_range"], ".0f")] if ranges else row)
    return _table(head, rows)


def step_time(answer: Answer) -> str:
    """All rows, the trusted ones, and by trust."""
    by_trust = [(f"rows of trust {trust}", found) for trust, found in sorted(answer["by_trust"].items())]
    named = [("complete rows of trust A and B", answer["trusted"]), *by_trust, ("all rows", answer["step_time"])]
    return _errors(named)


def by_source(answer: Answer) -> str:
    """Step time by source."""
    return _errors(answer["by_source"].items())


def by_gpu(answer: Answer) -> str:
    """Step time by device."""
    return _errors(answer["by_gpu"].items())


def by_parallelism(answer: Answer) -> str:
    """Step time by the kinds of parallelism combined."""
    return _errors(answer["by_parallelism"].items())


def memory(answer: Answer) -> str:
    """Peak memory by source."""
    return _errors([("all rows", answer["memory"]), *answer["memory_by_source"].items()], ranges=False)


def ranking(answer: Answer) -> str:
    """Ranking over groups, by place."""
    head = ["", "groups", "layouts", "Kendall's tau", "mean regret", "worst regret", "best found"]
    rows = [
        (
            place, str(found["groups"]), str(found["layouts"]), f"{found['kendall_tau']:.2f}",
            _share(found["mean_regret"]), _share(found["worst_regret"]), _share(found["best_found"], ".0f"),
        )
        for place, found in answer["ranking"]["by_place"].items()
    ]  # fmt: skip
    return _table(head, rows)


def groups(answer: Answer) -> str:
    """Every group, the largest regret first."""
    head = ["job", "layouts", "tau", "regret", "first choice", "best measured"]
    rows = [
        (
            f"{one['model']}, {one['gpus']} × {one['gpu']}, batch {one['global_batch']} × {one['seq_len']}",
            str(one["layouts"]), f"{one['kendall_tau']:.2f}", _share(one["regret"]),
            f"{one['first_choice']} ({one['first_choice_measured_s']:.3g} s)",
            f"{one['best']} ({one['best_measured_s']:.3g} s)",
        )
        for one in answer["ranking"]["each"]
    ]  # fmt: skip
    return _table(head, rows)


def worst(answer: Answer) -> str:
    """The configurations that are predicted worst, at most two of a source."""
    head = ["row", "measured", "predicted", "error", "largest terms of the prediction", "assumed"]
    rows: list[Sequence[str]] = []
    seen: Counter[str] = Counter()
    for one in answer["worst"]:
        seen[one["source"]] += 1
        if seen[one["source"]] > _OF_A_SOURCE or len(rows) == _WORST:
            continue
        terms = list(one["terms"].items())[:_TERMS]
        rows.append((
            f"{one['id']}: {one['gpus']} × {one['gpu']}, {one['layout']} ({one['source']})",
            f"{one['measured_s']:.3g} s", f"{one['predicted_s']:.3g} s", _share(one["error"], "+.0f"),
            ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in terms),
            textwrap.shorten("; ".join(one["assumed"]), 160, placeholder=" …") or "nothing",
        ))  # fmt: skip
    return _table(head, rows)


def assumptions(answer: Answer) -> str:
    """What rows do not say, and for how many it had to be assumed."""
    parts = answer["assumptions"]
    lines = [f"- {part['rows']} × {part['assumption']}" for part in parts[:_ASSUMPTIONS]]
    more = len(parts) - _ASSUMPTIONS
    return "\n".join([*lines, *([f"- and {more} rarer ones"] if more > 0 else [])])


def left_out(answer: Answer) -> str:
    """Rows that are not scored, and why."""
    lines = [
        f"- {part['rows']} skipped: {'' if part['same_reason'] else 'such as '}{part['reason']} "
        f"({', '.join(part['ids'][:3])}{', …' if len(part['ids']) > 3 else ''})"
        for part in answer["skipped"]
    ]
    return "\n".join([*lines, *(f"- {part['rows']} not compared: {part['reason']}" for part in answer["unscored"])])


TABLES: Mapping[str, Callable[[Answer], str]] = {
    made.__name__: made
    for made in (step_time, by_source, by_gpu, by_parallelism, memory, ranking, groups, worst, assumptions, left_out)
}
"""Name in the template -> what makes the table."""
