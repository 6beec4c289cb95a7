"""What inputs other than traces of steps say, in a terminal: a table a list, a line a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import bytes_text, count_text, seconds_text
from meshwright.files.outputs_later import CompareOutput
from meshwright.reports.terminal import View
from meshwright.reports.terminal_parts import heading, percent, table

_SHARES = ("share", "efficiency", "free_share", "spread", "job_loss")
_MOST_ROWS, _MOST_COLUMNS, _MOST_ITEMS = 24, 7, 12


def tables_view(tables: Mapping[str, Any]) -> View:
    """Every input's figures under its path; values that are neither figures nor lists of rows are left to --json."""
    parts: list[RenderableType] = []
    for path, said in tables.items():
        rows = said if isinstance(said, Sequence) and not isinstance(said, str) else [said]
        rows = [row for row in rows if isinstance(row, Mapping)]
        lines = list(_grid(rows)) if len(rows) > 1 else [part for row in rows for part in _figures(row)]
        parts += [heading(path), *lines] if lines else []
    return parts


def _figures(row: Mapping[str, Any]) -> View:
    texts: list[str] = []
    grids: list[RenderableType] = []
    for key, value in row.items():
        if _plain(value):
            texts.append(f"{_words(key)} {_shown(key, value)}")
        elif isinstance(value, Mapping) and value and all(_plain(one) for one in value.values()):
            items = [f"{name}: {_shown(key, one)}" for name, one in list(value.items())[:_MOST_ITEMS]]
            grids.append(Text(f"{_words(key)}  {', '.join(items)}{' …' * (len(value) > _MOST_ITEMS)}"))
        elif isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            grids += _grid(value)
        elif isinstance(value, Sequence) and value and all(_plain(one) for one in value):
            texts.append(f"{_words(key)} {', '.join(_shown(key, one) for one in value[:_MOST_ITEMS])}")
    return [*([Text(", ".join(texts))] if texts else []), *grids]


def _grid(rows: Sequence[Mapping[str, Any]]) -> View:
    """One table of the figures that any row has."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if any(_figure(row, key) for row in rows)][
        :_MOST_COLUMNS
    ]
    grid = table([_words(key) for key in keys], left=[_words(key) for key in keys if _worded(rows, key)])
    for row in rows[:_MOST_ROWS]:
        grid.add_row(*[_shown(key, row.get(key)) if _plain(row.get(key)) else "" for key in keys])
    more = [Text(f"… and {len(rows) - _MOST_ROWS} more: see --json")] if len(rows) > _MOST_ROWS else []
    return [grid, *more]


def _figure(row: Mapping[str, Any], key: str) -> bool:
    return row.get(key) is not None and _plain(row.get(key))


def _worded(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(isinstance(row.get(key), str) for row in rows)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, int | float | str)


def _words(key: str) -> str:
    return key.removesuffix("_s").replace("_per", "/s" if key.endswith("per_s") else "_per").replace("_", " ")


def _shown(key: str, value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, float):
        if key.endswith("per_s"):
            return count_text(float(f"{value:.4g}"))
        if key.endswith("_s") or key == "seconds":
            return seconds_text(value)
        if key in _SHARES or "share" in key:
            return percent(value)
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def compare_view(answer: CompareOutput) -> View:
    """A row a figure, then the verdict."""
    grid = table(["figure", "first", "others", "moved"], left=["figure", "others"])
    words = {True: "beyond the spread", False: "within the spread", None: "not judged"}
    for figure in answer.figures:
        values = [_valued(value, figure.unit) for value in (figure.first, *figure.others)]
        grid.add_row(figure.name, values[0], ", ".join(values[1:]), words[figure.significant])
    return [heading(f"compared ({answer.mode})"), grid, *[Text(line) for line in answer.verdict.split("; ")]]


def _valued(value: float | None, unit: str) -> str:
    if value is None:
        return "not recorded"
    return seconds_text(value) if unit == "s" else bytes_text(value) if unit == "bytes" else f"{value:.5g}"
