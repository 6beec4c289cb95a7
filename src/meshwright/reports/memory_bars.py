"""Memory by pipeline rank and kind: predicted, and held by the run, against the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.basics.quantities import GIB, MIB, bytes_text
from meshwright.files.prediction import Prediction
from meshwright.files.run import RankMemory
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, bars, base_layout, label, rows_axis

_COLOURS = {
    "weights": picture.BLUE, "gradients": picture.SKY, "optimizer": picture.GREEN, "activations": picture.ORANGE,
    "logits": picture.VERMILION, "communication": picture.PURPLE, "reserve": picture.GREY,
}  # fmt: skip
HELD = ("weights", "gradients", "optimizer")
"""The kinds that a run counts: its model states."""


def heaviest(held: Sequence[RankMemory], pipeline_rank_of: Sequence[int]) -> dict[int, RankMemory]:
    """Of the ranks that share a pipeline rank, the one that holds most."""
    found: dict[int, RankMemory] = {}
    for memory in held:
        place = pipeline_rank_of[memory.rank]
        if place not in found or held_bytes(memory) > held_bytes(found[place]):
            found[place] = memory
    return found


def held_bytes(memory: RankMemory) -> int:
    """Bytes of the model states that a rank held."""
    return sum(int(getattr(memory, kind)) for kind in HELD)


def _stack(
    rows: Sequence[int],
    parts: Sequence[Mapping[str, int]],
    kinds: Sequence[str],
    size: int,
    what: str,
    *,
    thickness: float,
    offset: float,
) -> list[dict[str, Any]]:
    """One trace a kind, its bars starting where the kind before ended; `parts[i]` are the bytes of row `rows[i]`."""
    traces, ends = [], [0.0] * len(rows)
    for kind in kinds:
        sizes = [part.get(kind, 0) for part in parts]
        hover = [f"pp rank {row}, {what}<br>{label(kind)}: {bytes_text(n)}" for row, n in zip(rows, sizes, strict=True)]
        traces.append(
            bars(
                kind, _COLOURS.get(kind, picture.YELLOW), rows=rows, starts=ends, lengths=[n / size for n in sizes],
                hover=hover, thickness=thickness, offset=offset,
            )
        )  # fmt: skip
        ends = [end + n / size for end, n in zip(ends, sizes, strict=True)]
    return traces


def _peaks(held: Sequence[RankMemory], pipeline_rank_of: Sequence[int]) -> dict[int, int]:
    """The largest tracked peak of tensors on each pipeline rank, bytes; absent where no rank of it tracked one."""
    found: dict[int, int] = {}
    for memory in held:
        if memory.peak_tensors is not None:
            place = pipeline_rank_of[memory.rank]
            found[place] = max(found.get(place, 0), memory.peak_tensors)
    return found


def _peak_marks(peaks: Mapping[int, int], size: int, offset: float) -> dict[str, Any]:
    """A mark a pipeline rank at the peak that its run tracked."""
    return {
        "type": "scatter", "mode": "markers", "name": "measured peak", "x": [n / size for n in peaks.values()],
        "y": [place + offset for place in peaks], "hoverinfo": "text",
        "hovertext": [f"pp rank {place}<br>peak of tensors in a step: {bytes_text(n)}" for place, n in peaks.items()],
        "marker": {"symbol": "diamond", "size": 11, "color": picture.INK, "line": {"color": picture.PAPER, "width": 1}},
    }  # fmt: skip


def memory_bars(
    prediction: Prediction, held: Sequence[RankMemory] = (), pipeline_rank_of: Sequence[int] = ()
) -> Picture:
    """One row a pipeline rank: the predicted bytes by kind, under them what a rank of the run held by kind.

    `pipeline_rank_of[rank]` maps the run's ranks; both are per rank, not summed over a group. Held
    bytes are counted, so their mode is measured however the run's time was taken.
    """
    stages = sorted(prediction.memory, key=lambda stage: stage.pipeline_rank)
    measured = heaviest(held, pipeline_rank_of)
    peaks = _peaks(held, pipeline_rank_of)
    limit = prediction.memory_limit_bytes
    most = max([stage.total for stage in stages] + [held_bytes(memory) for memory in measured.values()])
    most = max(most, *peaks.values()) if peaks else most
    unit, size = ("GiB", GIB) if most >= GIB else ("MiB", MIB)
    thick, thin = (0.44, 0.22) if measured else (0.6, 0.0)
    top = -(thick + thin) / 2
    kinds = [kind for kind in _COLOURS if any(stage.parts.get(kind) for stage in stages)]
    kinds += sorted({kind for stage in stages for kind in stage.parts} - set(_COLOURS))
    ranks = [stage.pipeline_rank for stage in stages]
    predicted = [stage.parts for stage in stages]
    data = _stack(ranks, predicted, kinds, size, "predicted", thickness=thick, offset=top)
    places = sorted(measured)
    parts = [{kind: int(getattr(measured[place], kind)) for kind in HELD} for place in places]
    hatch = {"shape": "/", "size": 5, "solidity": 0.35, "fgcolor": picture.PAPER, "fillmode": "overlay"}
    for trace in _stack(places, parts, HELD, size, "held after a step", thickness=thin, offset=top + thick):
        trace["marker"]["pattern"] = hatch
        if places:
            data.append({**trace, "showlegend": trace["name"] not in kinds})
    if peaks:
        data.append(_peak_marks(peaks, size, offset=top + thick + thin / 2))
    near = limit <= 2.5 * most
    layout = base_layout(
        xaxis=axis(f"{unit} a rank", range=[0, max(most, limit if near else 0) / size * 1.06]),
        yaxis=rows_axis([f"pp rank {rank}" for rank in ranks]),
    )
    if near:
        layout |= _limit_line(limit, size, fits=limit >= most)
    worst = prediction.worst_memory
    caption = (
        f"Pipeline rank {worst.pipeline_rank} needs most: {bytes_text(worst.total)} of {bytes_text(limit)} "
        f"({worst.total / limit:.0%})" + (". " if near else "; the limit lies beyond the right edge. ")
    )
    if places:
        caption += "Thick bars are predicted; the hatched bars under them are the tensors a rank held after a step."
    if peaks:
        caption += " A diamond is the most it held at once within a step."
    return Picture(
        "memory", "Memory by pipeline rank", ("predicted", "measured") if places else ("predicted",), caption,
        tuple(data), layout, 110 + 46 * len(stages), _table(prediction, measured, peaks, kinds),
    )  # fmt: skip


def _limit_line(limit: int, size: int, *, fits: bool) -> dict[str, Any]:
    """Plotly's shape and label of the memory limit."""
    colour = picture.INK if fits else picture.VERMILION
    at = limit / size
    line = {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper"}
    text = {"text": f"limit {bytes_text(limit)}", "showarrow": False, "font": {"color": colour}}
    return {
        "shapes": [{**line, "line": {"color": colour, "width": 2, "dash": "dot"}}],
        "annotations": [{**text, "x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "right"}],
    }


def _table(
    prediction: Prediction, measured: Mapping[int, RankMemory], peaks: Mapping[int, int], kinds: Sequence[str]
) -> Table:
    head = (
        "pipeline rank",
        *kinds,
        "total",
        "micro-batches in flight",
        *([f"held {kind}" for kind in HELD] * bool(measured)),
        *(["measured peak"] * bool(peaks)),
    )
    rows = []
    for stage in sorted(prediction.memory, key=lambda stage: stage.pipeline_rank):
        row = [str(stage.pipeline_rank), *(bytes_text(stage.parts.get(kind, 0)) for kind in kinds)]
        row += [bytes_text(stage.total), str(stage.in_flight)]
        if measured:
            memory = measured.get(stage.pipeline_rank)
            row += [bytes_text(getattr(memory, kind)) if memory else "not recorded" for kind in HELD]
        if peaks:
            peak = peaks.get(stage.pipeline_rank)
            row.append("not recorded" if peak is None else bytes_text(peak))
        rows.append(tuple(row))
    return Table(head, tuple(rows))
