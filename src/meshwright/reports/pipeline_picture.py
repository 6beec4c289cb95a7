"""The pipeline's timeline: predicted above measured on one time axis, a row a rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.reports import picture
from meshwright.reports.lanes import (
    BACKWARD,
    CATEGORIES,
    COMMUNICATION,
    COPY,
    FORWARD,
    INPUT_BACKWARD,
    OPTIMIZER,
    OTHER,
    UNCLASSIFIED,
    WEIGHT_BACKWARD,
    Lanes,
    joined,
    lanes,
)
from meshwright.reports.picture import Picture, Table, axis, bars, base_layout, label, rows_axis
from meshwright.timeline.columns import Timeline

_COLOURS = {
    FORWARD: (picture.SKY, "#10202c"), BACKWARD: (picture.BLUE, "#ffffff"), INPUT_BACKWARD: (picture.BLUE, "#ffffff"),
    WEIGHT_BACKWARD: (picture.GREEN, "#ffffff"), OPTIMIZER: (picture.PURPLE, "#10202c"),
    OTHER: (picture.GREY, "#10202c"), COMMUNICATION: (picture.ORANGE, "#10202c"), COPY: (picture.YELLOW, "#10202c"),
    UNCLASSIFIED: (picture.GREY, "#10202c"),
}  # fmt: skip
MOST_ROWS = 32
_MOST_SPANS = 2500  # more than this and a browser redraws slowly; a screen has no more pixels anyway
_MOST_NUMBERS = 600
_ROW_PX = 26


@dataclass(frozen=True, slots=True)
class Panel:
    """One timeline to draw, what it is beside its mode (may be empty), and what its rows are."""

    title: str
    timeline: Timeline
    row: str = "rank"


def _spans(panel: Panel) -> tuple[Lanes, tuple[str, ...]]:
    ranks = panel.timeline.recorded[:MOST_ROWS]
    spans = lanes(panel.timeline, ranks=ranks)
    notes = []
    if len(panel.timeline.recorded) > len(ranks):
        notes.append(f"{panel.title}: the first {len(ranks)} of {len(panel.timeline.recorded)} ranks are drawn.")
    if len(spans) > _MOST_SPANS:
        gap = spans.step_ms / 2000
        spans = joined(spans, gap)
        notes.append(f"{panel.title}: neighbouring spans less than {gap:.2f} ms apart are drawn as one.")
    return spans, tuple(notes)


def _hover(spans: Lanes, index: int, row: str) -> str:
    category = CATEGORIES[spans.category[index]]
    parts = [f"{row} {spans.ranks[spans.row[index]]}: {category}"]
    if spans.micro_batch[index] >= 0:
        parts.append(f"micro-batch {spans.micro_batch[index]}, stage {spans.stage[index]}")
    if spans.name[index]:
        parts.append(label(spans.name[index][:80]))
    parts.append(f"{spans.start_ms[index]:.2f} ms + {spans.length_ms[index]:.2f} ms")
    return "<br>".join(parts)


def _traces(spans: Lanes, row: str, yaxis: str, numbers: bool, shown: set[str]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number, category in enumerate(CATEGORIES):
        picked = np.flatnonzero(spans.category == number)
        if not len(picked):
            continue
        colour, ink = _COLOURS[category]
        hover = [_hover(spans, i, row) for i in picked.tolist()]
        beside = category in (COMMUNICATION, COPY)  # a thin band below the computing, so that overlap shows
        trace = bars(
            category, colour, rows=spans.row[picked].tolist(), starts=np.round(spans.start_ms[picked], 4).tolist(),
            lengths=np.round(spans.length_ms[picked], 4).tolist(), hover=hover,
            thickness=0.2 if beside else 0.6, offset=0.2 if beside else -0.42, yaxis=yaxis,
            showlegend=category not in shown,
        )  # fmt: skip
        if numbers and not beside:
            trace["text"] = [str(m) if m >= 0 else "" for m in spans.micro_batch[picked].tolist()]
            trace |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
            trace["insidetextfont"] = {"color": ink, "size": 11}
        shown.add(category)
        found.append(trace)
    return found


def _busy(spans: Lanes) -> list[float]:
    """Share of the step each row computes (its computing spans joined)."""
    computing = [i for i, name in enumerate(CATEGORIES) if name not in (COMMUNICATION, COPY)]
    mask = np.isin(spans.category, computing)
    merged = joined(
        Lanes(
            row=spans.row[mask], start_ms=spans.start_ms[mask], length_ms=spans.length_ms[mask],
            category=np.zeros(int(mask.sum()), np.int8), micro_batch=spans.micro_batch[mask], stage=spans.stage[mask],
            name=(), ranks=spans.ranks, step_ms=spans.step_ms, step=spans.step,
        ), 0.0,
    )  # fmt: skip
    return [float(merged.length_ms[merged.row == row].sum()) / spans.step_ms for row in range(len(spans.ranks))]


def longest_step_ms(panels: Sequence[Panel]) -> float:
    """Device milliseconds of the longest step among the panels: the axis that pictures to be compared share."""
    return max((lanes(panel.timeline, ranks=()).step_ms for panel in panels), default=0.0)


def pipeline_picture(name: str, title: str, panels: Sequence[Panel], span_ms: float = 0.0) -> Picture:
    """Draw the panels one above the other on one time axis, device milliseconds from each step's start.

    The axis reaches to `span_ms` at least. At the right end of a row stands the share of the step that the rank
    computed. Raises ValueError without panels.
    """
    drawn = [_spans(panel) for panel in panels]
    widest = max(span_ms, *(spans.step_ms for spans, _ in drawn))
    total_rows = sum(len(spans.ranks) for spans, _ in drawn)
    numbers = sum(len(spans) for spans, _ in drawn) <= _MOST_NUMBERS
    head_px, axis_px, top_px = 30, 56, 40
    plot_px = total_rows * _ROW_PX + head_px * len(panels)
    data: list[dict[str, object]] = []
    shown: set[str] = set()
    layout = base_layout(
        annotations=[], shapes=[], margin={"l": 12, "r": 54, "t": top_px, "b": 12},
    )  # fmt: skip
    layout["legend"] = {**layout["legend"], "y": 1.0}
    edge, rows = 1.0, []
    for number, (panel, (spans, _)) in enumerate(zip(panels, drawn, strict=True)):
        suffix = "" if number == 0 else str(number + 1)
        top = edge - head_px / plot_px
        bottom = top - len(spans.ranks) * _ROW_PX / plot_px
        names = [f"{panel.row} {rank}" for rank in spans.ranks]
        layout[f"yaxis{suffix}"] = rows_axis(names, domain=[max(bottom, 0.0), top])
        data += _traces(spans, panel.row, f"y{suffix}", numbers, shown)
        mode = panel.timeline.mode
        scale = f" (K = {panel.timeline.time_scale:g})" if mode == "dilated" else ""
        which = f"step {spans.step}" if mode != "predicted" and spans.step >= 0 else "the step"
        text = f"<b>{mode}</b>{scale} {label(panel.title)}".strip() + f": {which} takes {spans.step_ms:.2f} ms"
        layout["annotations"].append(
            {"text": text, "x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom",
             "showarrow": False}
        )  # fmt: skip
        for row, busy in enumerate(_busy(spans)):
            layout["annotations"].append(
                {"text": f"{busy:.0%}", "x": 1.005, "xref": "paper", "y": row, "yref": f"y{suffix}", "xanchor": "left",
                 "showarrow": False, "font": {"color": picture.FAINT, "size": 11.5}}
            )  # fmt: skip
            rows.append(
                (f"{mode} {panel.title}".strip(), names[row], f"{busy:.1%}", f"{1 - busy:.1%}", f"{spans.step_ms:.2f}")
            )
        layout["shapes"].append(
            {"type": "line", "x0": spans.step_ms, "x1": spans.step_ms, "xref": "x", "y0": max(bottom, 0.0), "y1": top,
             "yref": "paper", "line": {"color": picture.INK, "width": 1.5, "dash": "dot"}}
        )  # fmt: skip
        edge = bottom
    last = "" if len(panels) == 1 else str(len(panels))
    layout["xaxis"] = axis("device milliseconds from the step's start", range=[0, widest * 1.01], anchor=f"y{last}")
    return Picture(
        name, title, tuple(dict.fromkeys(panel.timeline.mode for panel in panels)),
        ("Numbers in the bars are micro-batches. " if numbers else "")
        + "The thin band under the bars is communication, waiting included; at the right stands the share of the step "
        "that the rank computes. Drag to zoom, double-click to return.",
        tuple(data), layout, plot_px + axis_px + top_px,
        Table(("timeline", "rank", "computing", "not computing", "step, device ms"), tuple(rows)),
        tuple(note for _, notes in drawn for note in notes),
    )  # fmt: skip
