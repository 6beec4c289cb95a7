"""Step times: every run's repeats beside what was predicted for it; and where a predicted step goes, term by term."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.basics.quantities import seconds_text
from meshwright.files.prediction import Prediction
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, bars, base_layout, label, rows_axis

_TERMS = {
    "compute": ("compute", picture.BLUE), "recompute": ("recompute", picture.SKY),
    "imbalance": ("imbalance", picture.VERMILION), "bubble": ("bubble", picture.IDLE),
    "tp_comm": ("tensor communication", picture.ORANGE), "cp_comm": ("context communication", picture.ORANGE),
    "ep_comm": ("expert communication", picture.ORANGE), "pp_comm": ("pipeline communication", picture.ORANGE),
    "dp_comm": ("data communication", picture.ORANGE), "optimizer": ("optimizer", picture.PURPLE),
    "host": ("host", picture.YELLOW),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepRow:
    """One run: its label and mode, device seconds of each repeat, and the predictions made for it, by name."""

    name: str
    mode: str
    windows: tuple[float, ...]
    predictions: Mapping[str, float]


def step_picture(rows: Sequence[StepRow]) -> Picture:
    """A row a run: a dot for each repeat, a bar at their median, a mark for each prediction."""
    data: list[dict[str, object]] = []
    dots = [(row, index, window) for index, row in enumerate(rows) for window in row.windows]
    data.append(
        {"type": "scatter", "mode": "markers", "name": "a repeat", "x": [w * 1e3 for _, _, w in dots],
         "y": [index for _, index, _ in dots], "hoverinfo": "text",
         "hovertext": [f"{label(row.name)} ({row.mode})<br>{seconds_text(window)}" for row, _, window in dots],
         "marker": {"color": picture.BLUE, "size": 11, "opacity": 0.75}}
    )  # fmt: skip
    for number, kind in enumerate(dict.fromkeys(kind for row in rows for kind in row.predictions)):
        points = [(index, row, row.predictions[kind]) for index, row in enumerate(rows) if kind in row.predictions]
        data.append(
            {"type": "scatter", "mode": "markers", "name": label(kind), "x": [value * 1e3 for *_, value in points],
             "y": [index for index, *_ in points], "hoverinfo": "text",
             "hovertext": [f"{label(row.name)}<br>{label(kind)}: {seconds_text(value)}" for _, row, value in points],
             "marker": {"color": (picture.VERMILION, picture.GREEN, picture.PURPLE)[number % 3], "size": 15,
                        "symbol": ("diamond-open", "square-open", "triangle-up-open")[number % 3],
                        "line": {"width": 2.5}}}
        )  # fmt: skip
    longest = max([w for *_, w in dots] + [value for row in rows for value in row.predictions.values()]) * 1e3
    layout = base_layout(
        xaxis=axis("device milliseconds a step", range=[0, longest * 1.06]), yaxis=rows_axis([row.name for row in rows])
    )
    table = Table(
        ("run", "mode", "repeats", "lowest", "highest", "predictions"),
        tuple(
            (row.name, row.mode, str(len(row.windows)), seconds_text(min(row.windows)), seconds_text(max(row.windows)),
             "; ".join(f"{kind}: {seconds_text(value)}" for kind, value in row.predictions.items()) or "none")
            for row in rows
        ),
    )  # fmt: skip
    modes = tuple(dict.fromkeys(["predicted"] * any(row.predictions for row in rows) + [row.mode for row in rows]))
    caption = "Every repeat of the measurement is a dot, so the spread shows; the axis starts at zero."
    return Picture(
        "steps", "Step time, repeat by repeat", modes, caption, tuple(data), layout, 130 + 44 * len(rows), table
    )


def terms_picture(predictions: Mapping[str, Prediction]) -> Picture:
    """Where the predicted step goes: a row a plan (label -> prediction), its terms end to end."""
    data = []
    names = list(predictions)
    known = [term for term in _TERMS if any(p.terms.get(term) for p in predictions.values())]
    known += sorted({term for p in predictions.values() for term in p.terms} - set(_TERMS))
    ends = [0.0] * len(names)
    for term in known:
        title, colour = _TERMS.get(term, (term, picture.GREEN))
        values = [predictions[name].terms.get(term, 0.0) * 1e3 for name in names]
        hover = [
            f"{label(name)}<br>{label(title)}: {seconds_text(value / 1e3)} "
            f"({value / predictions[name].step_time_s / 10:.1f} % of the step)"
            for name, value in zip(names, values, strict=True)
        ]
        data.append(
            bars(title, colour, rows=list(range(len(names))), starts=list(ends), lengths=values, hover=hover,
                 thickness=0.6, offset=-0.3)
        )  # fmt: skip
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    layout = base_layout(xaxis=axis("device milliseconds a step", rangemode="tozero"), yaxis=rows_axis(names))
    rows = tuple(
        (_TERMS.get(term, (term, ""))[0], *(seconds_text(predictions[name].terms.get(term, 0.0)) for name in names))
        for term in known
    )
    totals = "; ".join(f"{name}: {seconds_text(p.step_time_s)}" for name, p in predictions.items())
    return Picture(
        "terms", "Where the predicted step goes", ("predicted",), f"The terms add up to the step: {totals}.",
        tuple(data), layout, 130 + 44 * len(names), Table(("term", *names), rows),
    )  # fmt: skip
