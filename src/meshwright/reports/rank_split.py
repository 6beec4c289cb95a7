"""Where each rank's time goes: compute, exposed communication, exposed copies, idle."""

from collections.abc import Mapping

from meshwright.files.findings import Diagnosis, RankSplit
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, bars, base_layout, label, rows_axis

_PARTS = (
    ("compute", "compute_s", picture.BLUE), ("exposed communication", "exposed_comm_s", picture.ORANGE),
    ("exposed copies", "exposed_copy_s", picture.PURPLE), ("unclassified", "unclassified_s", picture.YELLOW),
    ("idle", "idle_s", picture.IDLE),
)  # fmt: skip
MOST_RANKS = 32


def _seconds(split: RankSplit, key: str) -> float:
    """One part of a rank's window; what could not be classified is drawn apart from the compute it counts as."""
    value = float(getattr(split, key))
    return max(0.0, value - split.unclassified_s) if key == "compute_s" else value


def rank_split(diagnoses: Mapping[str, Diagnosis]) -> Picture:
    """One panel a run (label -> diagnosis), one row a rank; device milliseconds a step on one shared axis."""
    data, panels, notes = [], list(diagnoses.items()), []
    layout = base_layout(annotations=[])
    shown = [min(len(diagnosis.ranks), MOST_RANKS) for _, diagnosis in panels]
    gap = 0.09 if len(panels) > 1 else 0.0
    free = 1 - gap * (len(panels) - 1)
    top = 1.0
    used = [part for part in _PARTS if any(getattr(r, part[1]) > 0 for _, d in panels for r in d.ranks)]
    for number, ((name, diagnosis), rows) in enumerate(zip(panels, shown, strict=True)):
        suffix = "" if number == 0 else str(number + 1)
        ranks = diagnosis.ranks[:rows]
        ends = [0.0] * rows
        for part, key, colour in used:
            values = [_seconds(split, key) * 1e3 for split in ranks]
            hover = [
                f"{label(name)}, rank {split.rank}<br>"
                f"{part}: {value:.2f} ms a step ({value / split.window_s / 10:.0f} %)"
                for split, value in zip(ranks, values, strict=True)
            ]
            data.append(
                bars(part, colour, rows=list(range(rows)), starts=list(ends), lengths=values, hover=hover,
                     thickness=0.7, offset=-0.35, yaxis=f"y{suffix}", showlegend=number == 0)
            )  # fmt: skip
            ends = [end + value for end, value in zip(ends, values, strict=True)]
        bottom = max(top - free * rows / sum(shown), 0.0)
        layout[f"yaxis{suffix}"] = rows_axis([f"rank {split.rank}" for split in ranks], domain=[bottom, top])
        if len(panels) > 1:
            layout["annotations"].append(
                {"x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom",
                 "text": f"<b>{label(name)}</b>", "showarrow": False}
            )  # fmt: skip
        top = bottom - gap
        if rows < len(diagnosis.ranks):
            notes.append(f"{name}: the first {rows} of {len(diagnosis.ranks)} ranks are drawn; the table has all.")
    last = "" if len(panels) == 1 else str(len(panels))
    layout["xaxis"] = axis("device milliseconds a step", rangemode="tozero", anchor=f"y{last}")
    if len(panels) > 1:
        layout["legend"] = {**layout["legend"], "y": 1 + 26 / (26 * sum(shown)), "yanchor": "bottom"}
        layout["margin"] = {**layout["margin"], "t": 62}
    table = Table(
        ("run", "rank", "compute ms", "exposed communication ms", "exposed copies ms", "idle ms", "idle share"),
        tuple(
            (name, str(split.rank), f"{split.compute_s * 1e3:.2f}", f"{split.exposed_comm_s * 1e3:.2f}",
             f"{split.exposed_copy_s * 1e3:.2f}", f"{split.idle_s * 1e3:.2f}", f"{split.idle_s / split.window_s:.1%}")
            for name, diagnosis in panels
            for split in diagnosis.ranks
        ),
    )  # fmt: skip
    modes = tuple(dict.fromkeys(diagnosis.mode for _, diagnosis in panels))
    windows = "; ".join(f"{name}: {diagnosis.window}" for name, diagnosis in panels)
    return Picture(
        "ranks", "Where each rank's time goes", modes, f"Window: {windows}. The parts of a bar add up to the step.",
        tuple(data), layout, 110 + 26 * sum(shown) + 34 * len(panels), table, tuple(notes),
    )  # fmt: skip
