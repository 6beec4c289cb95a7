"""A picture on the page: plain plotly data, the modes of its figures, and the same figures as a table."""

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Okabe & Ito's colours, told apart with any kind of colour vision, on light and on dark paper.
BLUE, SKY, GREEN, ORANGE = "#0072b2", "#56b4e9", "#009e73", "#e69f00"
VERMILION, PURPLE, YELLOW, GREY = "#d55e00", "#cc79a7", "#f0e442", "#8a8f98"

# Names that the page's script replaces by the colours of the light or the dark theme.
INK, FAINT, GRID, PAPER, IDLE = "$ink", "$faint", "$grid", "$paper", "$idle"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a head; columns after the first are figures, set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure. `modes` name where its figures come from; `data` and `layout` are plotly's own JSON."""

    name: str  # unique on the page: letters, digits and dashes
    title: str
    modes: tuple[str, ...]
    caption: str
    data: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    height: int
    table: Table | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def json(self) -> str:
        """Data and layout, safe inside a script element."""
        drawn = _finite({"data": self.data, "layout": {**self.layout, "height": self.height}})
        text = json.dumps(drawn, allow_nan=False)
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """The same with null, which plotly draws as a gap, for what is no number (the loss of a run that diverged)."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def label(text: str) -> str:
    """Text for plotly, which reads a little markup in its strings."""
    return html.escape(text, quote=False)


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis in the page's style."""
    return {
        "title": {"text": label(title), "standoff": 8, "font": {"size": 12.5, "color": FAINT}},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "tickfont": {"color": FAINT},
        "automargin": True,
        **more,
    }


def rows_axis(names: Sequence[str], **more: Any) -> dict[str, Any]:
    """A vertical axis of named rows at 0, 1, 2, ..., the first at the top."""
    return axis(
        tickvals=list(range(len(names))), ticktext=[label(name) for name in names], showgrid=False, zeroline=False,
        range=[len(names) - 0.45, -0.55], fixedrange=True, **more,
    )  # fmt: skip


def bars(
    name: str,
    colour: str,
    *,
    rows: Sequence[float],
    starts: Sequence[float],
    lengths: Sequence[float],
    hover: Sequence[str],
    thickness: float,
    offset: float,
    **more: Any,
) -> dict[str, Any]:
    """Horizontal bars at given rows, each from its own start; `offset` is from the row's middle to the bar's top."""
    return {
        "type": "bar", "orientation": "h", "name": label(name), "legendgroup": name, "y": list(rows),
        "base": list(starts), "x": list(lengths), "width": thickness, "offset": offset, "hovertext": list(hover),
        "hoverinfo": "text", "marker": {"color": colour, "line": {"color": PAPER, "width": 0.6}}, **more,
    }  # fmt: skip


def base_layout(**more: Any) -> dict[str, Any]:
    """What all pictures share."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": INK, "size": 12.5},
        "margin": {"l": 12, "r": 18, "t": 34, "b": 12}, "barmode": "overlay", "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        **more,
    }  # fmt: skip
