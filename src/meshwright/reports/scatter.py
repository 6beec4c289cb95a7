"""Measured against predicted, a dot a row: a page of its own, as `validate --plot` writes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from meshwright.basics.quantities import seconds_text
from meshwright.files.strict_json import write_whole
from meshwright.planner.accuracy import errors, gpu_of, memory_error, once_each, source_of, step_error
from meshwright.planner.configurations import Skipped
from meshwright.planner.validate import Judged
from meshwright.planner.validate_measured import MeasuredStep
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, base_layout, label

_OFF = 0.25  # the band around the line of perfect prediction
_FAMILIES = (
    ("V100", "V100", picture.ORANGE, "triangle-up"), ("A100, A800", ("A100", "A800"), picture.BLUE, "circle"),
    ("H100, H200, H800", ("H100", "H200", "H800"), picture.GREEN, "square"),
    ("B200, GB200", ("B200", "GB200"), picture.VERMILION, "diamond"),
    ("B300, GB300", ("B300", "GB300"), picture.PURPLE, "diamond-tall"), ("AMD MI", "MI", picture.SKY, "cross"),
)  # fmt: skip
_OTHERS = ("others", picture.GREY, "x")


@dataclass(frozen=True, slots=True)
class _Dot:
    """One measured figure beside its prediction."""

    family: str
    measured: float
    predicted: float
    hover: str


def write_scatter(entries: Sequence[Judged | Skipped], name: str, path: Path) -> None:
    """Write the page about a table called `name`; it loads nothing from the network."""
    # Imported here: they cost a second.
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    judged = [one for one in entries if isinstance(one, Judged)]
    pictures = tuple(found for found in (steps_picture(judged), memory_picture(judged)) if found is not None)
    templates = resources.files("meshwright.reports") / "templates"
    texts = {file: (templates / file).read_text(encoding="utf-8") for file in ("report.css", "report.js")}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((templates / "scatter.html.jinja").read_text(encoding="utf-8"))
    verdict = f"{len(judged):,} of {len(entries):,} rows are predicted{_how_well(judged)}."
    page = template.render(
        title=name, verdict=verdict, pictures=pictures, css=texts["report.css"], js=texts["report.js"],
        plotly=get_plotlyjs(),
    )  # fmt: skip
    write_whole(path, page)


def _how_well(judged: Sequence[Judged]) -> str:
    parts = (("step times", errors(judged, step_error)), ("peak memory", errors(judged, memory_error)))
    said = [f"{name} with a median error of {found.median:.1%}" for name, found in parts if found.median is not None]
    return f"; {' and '.join(said)}" if said else "; none of them has a measured figure to compare with"


def steps_picture(judged: Sequence[Judged]) -> Picture | None:
    """Step times, both axes logarithmic; None without any."""
    dots = []
    for one in once_each(judged, step_error):
        assert isinstance(one.step, MeasuredStep)
        seconds, whole = one.step.seconds, one.prediction.step_time_s
        hover = (
            f"{label(_about(one))}<br>measured {seconds_text(seconds)}, predicted {seconds_text(whole)} "
            f"({whole / seconds - 1:+.1%})"
        )
        dots.append(_Dot(_family(gpu_of(one)), seconds, whole, hover))
    caption = (
        "A dot is a configuration, by its latest measurement. On the line the prediction is right; above it too slow "
        "a step is predicted. The band is 25 % to either side. Both axes are logarithmic."
    )
    return _picture("steps", "Step time", "seconds a step", dots, caption)


def memory_picture(judged: Sequence[Judged]) -> Picture | None:
    """Peak memory; None without any."""
    dots = []
    for one in judged:
        if one.memory is not None and one.memory.gib > 0:
            hover = (
                f"{label(_about(one))}<br>measured {one.memory.gib:.1f} GiB ({one.memory.kind}), "
                f"predicted {one.peak_gib:.1f} GiB"
            )
            dots.append(_Dot(_family(gpu_of(one)), one.memory.gib, one.peak_gib, hover))
    caption = (
        "A dot is a row. Each prediction counts what the row's source counts: tensors, what the allocator holds, or "
        "the whole device. Some sources print GB that may be 10⁹ bytes: their dots lie up to 7 % too far to the right."
    )
    return _picture("memory", "Peak memory", "GiB on the fullest device", dots, caption)


def _about(one: Judged) -> str:
    row = one.row
    return (
        f"{row.name}: {row.model_name} on {one.plan.layout.world:,} {gpu_of(one)}, {one.layout_text}; {source_of(one)}"
    )


def _family(gpu: str) -> str:
    return next((name for name, starts, *_ in _FAMILIES if gpu.startswith(starts)), _OTHERS[0])


def _picture(name: str, title: str, unit: str, dots: Sequence[_Dot], caption: str) -> Picture | None:
    if not dots:
        return None
    ends = [value for dot in dots for value in (dot.measured, dot.predicted)]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    line = {"type": "scatter", "mode": "lines", "x": [low, high], "hoverinfo": "skip"}
    data: list[dict[str, Any]] = [
        {**line, "y": [low * (1 - _OFF), high * (1 - _OFF)], "line": {"width": 0}, "showlegend": False},
        {**line, "y": [low * (1 + _OFF), high * (1 + _OFF)], "line": {"width": 0}, "fill": "tonexty",
         "fillcolor": "rgba(138,143,152,0.18)", "name": "within 25 %"},
        {**line, "y": [low, high], "line": {"color": picture.FAINT, "width": 1.2}, "name": "exact"},
    ]  # fmt: skip
    styles = [(family, colour, symbol) for family, _, colour, symbol in _FAMILIES]
    for family, colour, symbol in (*styles, _OTHERS):
        part = [dot for dot in dots if dot.family == family]
        if part:
            data.append(
                {"type": "scatter", "mode": "markers", "name": label(family), "x": [dot.measured for dot in part],
                 "y": [dot.predicted for dot in part], "hovertext": [dot.hover for dot in part], "hoverinfo": "text",
                 "marker": {"color": colour, "symbol": symbol, "size": 7, "opacity": 0.75}}
            )  # fmt: skip
    scale = {"type": "log", "dtick": 1 if high / low > 300 else "D2"}
    layout = base_layout(
        xaxis=axis(f"measured, {unit}", **scale), yaxis=axis(f"predicted, {unit}", **scale), hovermode="closest"
    )
    rows = tuple(
        (family, f"{len(part):,}", f"{sum(abs(d.predicted / d.measured - 1) <= _OFF for d in part) / len(part):.0%}")
        for family in dict.fromkeys(dot.family for dot in dots)
        if (part := [dot for dot in dots if dot.family == family])
    )
    table = Table(("devices", "dots", "within 25 %"), rows)
    return Picture(name, title, ("measured", "predicted"), caption, tuple(data), layout, 560, table)
