"""The loss of one or several runs, step by step."""

from collections.abc import Mapping, Sequence

from meshwright.files.run import StepMetrics
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, base_layout, label

_LINES = (
    (picture.BLUE, "solid", "circle"), (picture.VERMILION, "dash", "diamond"), (picture.GREEN, "dot", "square"),
    (picture.PURPLE, "dashdot", "cross"), (picture.ORANGE, "longdash", "triangle-up"),
)  # fmt: skip


def loss_curve(runs: Mapping[str, Sequence[StepMetrics]]) -> Picture:
    """Loss against step; `runs` maps a label to the lines of its `metrics.jsonl`. Losses hold in every mode."""
    data = []
    for number, (name, lines) in enumerate(runs.items()):
        colour, dash, symbol = _LINES[number % len(_LINES)]
        hover = [f"step {line.step}<br>loss {line.loss:.4f}<br>gradient norm {line.grad_norm:.3g}" for line in lines]
        data.append(
            {"type": "scatter", "mode": "lines+markers" if len(lines) <= 60 else "lines", "name": label(name),
             "x": [line.step for line in lines], "y": [line.loss for line in lines], "hovertext": hover,
             "hoverinfo": "text+name", "line": {"color": colour, "dash": dash, "width": 2},
             "marker": {"color": colour, "symbol": symbol, "size": 5}, "showlegend": len(runs) > 1}
        )  # fmt: skip
    layout = base_layout(xaxis=axis("step"), yaxis=axis("loss (mean cross-entropy a token)"))
    rows = tuple(
        (name, str(len(lines)), f"{lines[0].loss:.4f}", f"{lines[-1].loss:.4f}")
        for name, lines in runs.items()
        if lines
    )
    caption = "; ".join(f"{name}: {first} to {last} over {count} steps" for name, count, first, last in rows) + "."
    return Picture(
        "loss", "Loss", ("measured",), caption, tuple(data), layout, 300,
        Table(("run", "steps", "first loss", "last loss"), rows),
    )  # fmt: skip
