"""Memory by pipeline rank and kind: predicted, and held by the run, against the limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.basics.quantities import GIB, MIB, bytes_text
from meshwright.files.prediction import Prediction, StageMemory, verdict
from meshwright.files.run import RankMemory
from meshwright.reports import picture
from meshwright.reports.picture import Picture, Table, axis, bars, base_layout, label, rows_axis

_COLOURS = {
    "weights": picture.BLUE, "gradients": picture.SKY, "master": "#66b899", "optimizer": picture.GREEN,
    "gathered": "#7f9bc9", "activations": picture.ORANGE, "recomputed": picture.YELLOW, "working": "#c9bb2b",
    "logits": picture.VERMILION, "step": "#8c510a", "communication": picture.PURPLE, "reserve": picture.GREY,
    "context": "#5b6068",
}  # fmt: skip
"""Kinds in the order of a bar: states in blue and green, what grows with the batch in yellow and red."""

_ROW, _LABEL = 46, 20  # pixels of a row, and of the limit's label over the first

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


def _limit_of(prediction: Prediction, stage: StageMemory) -> int:
    return prediction.memory_limit_bytes if stage.limit is None else stage.limit


def _ranges(prediction: Prediction, size: int) -> dict[str, Any] | None:
    """A whisker a pipeline rank over the range in which nine of ten such runs lie."""
    known = [stage for stage in prediction.memory if stage.range is not None]
    if not known:
        return None
    spans = [stage.range for stage in known if stage.range is not None]
    totals = [stage.total for stage in known]
    hover = [
        f"pp rank {stage.pipeline_rank}<br>nine of ten such runs: {bytes_text(low)} to {bytes_text(high)}"
        f"<br>runs out of memory: {_chance(stage.p_oom)}"
        for stage, (low, high) in zip(known, spans, strict=True)
    ]
    return {
        "type": "scatter", "mode": "markers", "name": "nine of ten runs", "hoverinfo": "text", "hovertext": hover,
        "x": [total / size for total in totals], "y": [stage.pipeline_rank for stage in known],
        "marker": {"symbol": "line-ns", "size": 9, "color": picture.INK, "line": {"color": picture.INK, "width": 2}},
        "error_x": {
            "type": "data", "symmetric": False, "color": picture.INK, "thickness": 1.6, "width": 5,
            "array": [(high - total) / size for total, (_, high) in zip(totals, spans, strict=True)],
            "arrayminus": [(total - low) / size for total, (low, _) in zip(totals, spans, strict=True)],
        },
    }  # fmt: skip


def _chance(p: float | None) -> str:
    """A probability as people read it."""
    if p is None:
        return "not estimated"
    return "below 0.1 %" if p < 0.001 else "above 99.9 %" if p > 0.999 else f"{p * 100:.3g} %"


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
    held_most = [held_bytes(memory) for memory in measured.values()]
    most = max([max(stage.total, *(stage.range or (0,))) for stage in stages] + held_most)
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
    whiskers = _ranges(prediction, size)
    if whiskers is not None:
        data.append(whiskers)
    limits = {stage.pipeline_rank: _limit_of(prediction, stage) for stage in stages}
    near = min(limits.values()) <= 2.5 * most
    layout = base_layout(
        xaxis=axis(f"{unit} a rank", range=[0, max(most, max(limits.values()) if near else 0) / size * 1.06]),
        yaxis=rows_axis([f"pp rank {rank}" for rank in ranks]),
    )
    if near:
        layout |= _limit_lines(limits, size, fits=prediction.fits)
        layout["legend"] = {**layout["legend"], "y": 1 + _LABEL / (_ROW * len(stages))}  # above the limit's label
    worst = prediction.worst_memory
    limit = limits[worst.pipeline_rank]
    caption = (
        f"Pipeline rank {worst.pipeline_rank} needs most: {bytes_text(worst.total)} of {bytes_text(limit)} "
        f"({worst.total / limit:.0%})" + (": " if near else "; the limit lies beyond the right edge: ")
    )
    caption += verdict(worst, limit)
    caption += ". " if worst.p_oom is None else f", it runs out with a probability {_words(worst.p_oom)}. "
    if places:
        caption += "Thick bars are predicted; the hatched bars under them are the tensors a rank held after a step."
    if peaks:
        caption += " A diamond is the most it held at once within a step."
    return Picture(
        "memory", "Memory by pipeline rank", ("predicted", "measured") if places else ("predicted",), caption,
        tuple(data), layout, 110 + (_LABEL if near else 0) + _ROW * len(stages),
        _table(prediction, measured, peaks, kinds),
    )  # fmt: skip


def _words(p: float) -> str:
    """`of 12 %`, `below 0.1 %`."""
    text = _chance(p)
    return text if text.startswith(("below", "above")) else f"of {text}"


def _limit_lines(limits: Mapping[int, int], size: int, *, fits: bool) -> dict[str, Any]:
    """Plotly's shapes and label of the memory limit: one line over all rows, or one a row where limits differ."""
    colour = picture.INK if fits else picture.VERMILION
    least = min(limits.values())
    stroke = {"type": "line", "line": {"color": colour, "width": 2, "dash": "dot"}}
    if len(set(limits.values())) == 1:
        shapes = [{**stroke, "x0": least / size, "x1": least / size, "y0": 0, "y1": 1, "yref": "paper"}]
    else:
        shapes = [
            {**stroke, "x0": limit / size, "x1": limit / size, "y0": rank - 0.5, "y1": rank + 0.5}
            for rank, limit in limits.items()
        ]
    words = f"limit {bytes_text(least)}" + ("" if len(shapes) == 1 else f" to {bytes_text(max(limits.values()))}")
    text = {"text": words, "showarrow": False, "font": {"color": colour}}
    return {
        "shapes": shapes,
        "annotations": [{**text, "x": least / size, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "right"}],
    }


def _table(
    prediction: Prediction, measured: Mapping[int, RankMemory], peaks: Mapping[int, int], kinds: Sequence[str]
) -> Table:
    head = (
        "pipeline rank",
        *kinds,
        "total",
        "nine of ten runs",
        "limit",
        "runs out",
        "micro-batches in flight",
        *([f"held {kind}" for kind in HELD] * bool(measured)),
        *(["measured peak"] * bool(peaks)),
    )
    rows = []
    for stage in sorted(prediction.memory, key=lambda stage: stage.pipeline_rank):
        row = [str(stage.pipeline_rank), *(bytes_text(stage.parts.get(kind, 0)) for kind in kinds)]
        span = "not estimated" if stage.range is None else " to ".join(map(bytes_text, stage.range))
        row += [bytes_text(stage.total), span, bytes_text(_limit_of(prediction, stage)), _chance(stage.p_oom)]
        row.append(str(stage.in_flight))
        if measured:
            memory = measured.get(stage.pipeline_rank)
            row += [bytes_text(getattr(memory, kind)) if memory else "not recorded" for kind in HELD]
        if peaks:
            peak = peaks.get(stage.pipeline_rank)
            row.append("not recorded" if peak is None else bytes_text(peak))
        rows.append(tuple(row))
    return Table(head, tuple(rows))
