"""The memory of a plan in a terminal: a line a kind, a column a pipeline rank, and what would make it fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import GIB, bytes_text, count_text
from meshwright.files.outputs import MemoryStagePart
from meshwright.files.outputs_memory import (
    AdvicePart,
    FitPart,
    MatchPart,
    MemoryOutput,
    OomPart,
    TensorPart,
    TracedStagePart,
)
from meshwright.reports.terminal_parts import bullets, heading, stages_text, table

View = Sequence[RenderableType]

_COLUMNS = 8  # more pipeline ranks are shown by their first, fullest and last, and by the range over all
_SEEN = 0.005  # GiB: a kind below it on every rank is left out
_SHORT = {"fits": "fits", "tight": "tight", "does not fit": "no"}
_MOMENTS = {"backward": "at most in backward", "step": "in the optimizer step"}
_FITS = {
    "micro_batch": "micro-batch, same global batch", "micro_batch of any global batch": "micro-batch, same count",
    "seq_len": "sequence, tokens", "layers": "layers, same width", "hidden": "width, same layers",
}  # fmt: skip


def memory_view(answer: MemoryOutput) -> View:
    """The table, the verdict, the recipe and the advice; with --oom what the request was for instead."""
    if answer.oom is not None:
        return [*_oom_view(answer.oom), Text(_fullest(answer))]
    return [
        *_table(answer),
        Text(_fullest(answer)),
        *_no_gradients(answer),
        *([Text("stages are not given; cut for the fastest step: " + stages_text(answer.cut))] if answer.cut else []),
        Text(f"bytes a parameter: {answer.recipe.text}"),
        Text(", ".join(f"{key} = {value}" for key, value in answer.recipe.settings.items())),
        *_advice(answer),
        *_fit_view(answer.fit),
        *_traced_view(answer.traced),
    ]


def _no_gradients(answer: MemoryOutput) -> View:
    """Why there are none where the most is alive: a 0 would read as forgotten."""
    parts = [stage.parts_gib for stage in answer.stages if stage.pipeline_rank == answer.worst_stage]
    if not any(part.get("weights") and not part.get("gradients") for part in parts):
        return []
    return [Text("no gradients at that moment: the first backward makes them while it frees activations")]


def chance(p: float | None) -> str:
    """`12 %`, `< 0.1 %`; `unknown` for None."""
    if p is None:
        return "unknown"
    share = f"{p * 100:.{0 if 0.1 <= p < 0.95 else 1}f} %"
    return "< 0.1 %" if p < 0.001 else "> 99.9 %" if p > 0.999 else share


def _fullest(answer: MemoryOutput) -> str:
    worst = next(stage for stage in answer.stages if stage.pipeline_rank == answer.worst_stage)
    spread = (
        "" if worst.range_gib is None else f", nine of ten runs {worst.range_gib[0]:.2f} to {worst.range_gib[1]:.2f}"
    )
    risk = "" if answer.p_oom is None else f", runs out with a probability of {chance(answer.p_oom)}"
    words = f"{worst.total_gib:.2f} GiB ({worst.total_gb:.2f} GB) of {worst.limit_gib:.2f} GiB"
    return f"fullest: pipeline rank {worst.pipeline_rank}, {words}{spread}: {answer.verdict}{risk} ({answer.mode})"


def _table(answer: MemoryOutput) -> View:
    stages = answer.stages
    marked = {stage.pipeline_rank: "*" if stage.pipeline_rank == answer.worst_stage else "" for stage in stages}
    few = len(stages) <= _COLUMNS
    ends = {stages[0].pipeline_rank, answer.worst_stage, stages[-1].pipeline_rank}
    shown = stages if few else [stage for stage in stages if stage.pipeline_rank in ends]
    names = [f"{stage.pipeline_rank}{marked[stage.pipeline_rank]}" for stage in shown]
    grid = table(["pipeline rank", *names, *([] if few else ["least", "most"])], left=("pipeline rank",))
    for name, figure, text in _rows(stages):
        every = [figure(stage) for stage in stages]
        known = [value for value in every if value is not None]
        if not known:
            continue
        cells = [text(figure(stage)) for stage in shown]
        grid.add_row(name, *cells, *([] if few else [text(min(known)), text(max(known))]))
    if any(len(stage.stages) > 1 for stage in stages):
        grid.add_row("stages", *[",".join(map(str, stage.stages)) for stage in shown])
    grid.add_row("verdict", *[_SHORT[stage.verdict] for stage in shown], *([] if few else ["", _SHORT[answer.verdict]]))
    hidden = "" if few else f"; {len(stages)} ranks, least and most over all"
    return [heading(f"GiB by pipeline rank ({answer.mode}); * the fullest{hidden}"), grid]


Figure = Callable[[MemoryStagePart], float | None]
Spelling = Callable[[float | None], str]


def _size(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _risk(value: float | None) -> str:
    return chance(value).replace(" ", "")


def _rows(stages: Sequence[MemoryStagePart]) -> Iterator[tuple[str, Figure, Spelling]]:
    """Name of a line, its figure of a rank, and how to spell it."""
    for kind in _present([stage.parts_gib for stage in stages]):
        yield kind, lambda stage, kind=kind: stage.parts_gib.get(kind, 0.0), _size  # type: ignore[misc]
    yield "total", lambda stage: stage.total_gib, _size
    yield "total in GB", lambda stage: stage.total_gb, _size
    yield "nine of ten from", lambda stage: stage.range_gib and stage.range_gib[0], _size
    yield "to", lambda stage: stage.range_gib and stage.range_gib[1], _size
    yield "limit", lambda stage: stage.limit_gib, _size
    for moment in _present([stage.moments_gib for stage in stages]):
        name = _MOMENTS.get(moment, moment)
        yield name, lambda stage, moment=moment: stage.moments_gib.get(moment), _size  # type: ignore[misc]
    for unit in _present([stage.units_gib for stage in stages]):
        name = f"activations of {unit}"
        yield name, lambda stage, unit=unit: stage.units_gib.get(unit, 0.0), _size  # type: ignore[misc]
    yield "micro-batches held", lambda stage: stage.in_flight, _count
    yield "runs out", lambda stage: stage.p_oom, _risk


def _present(figures: Sequence[Mapping[str, float]]) -> list[str]:
    kinds = dict.fromkeys(kind for each in figures for kind in each)
    return [kind for kind in kinds if any(each.get(kind, 0.0) >= _SEEN for each in figures)]


def _advice(answer: MemoryOutput) -> View:
    if not answer.advice:
        return []
    if answer.verdict == "fits":
        title = "what would take less"
    elif answer.verdict == "tight":
        title = "what would make it surer to fit"
    elif any(one.verdict != "does not fit" and len(one.change) == 1 for one in answer.advice):
        title = "what single change would make it fit"
    elif answer.advice[0].verdict != "does not fit":
        title = "what would make it fit"
    else:
        title = "no single change and no pair of them is enough; what helps most"
    return [heading(f"{title} (predicted, fullest rank)"), *bullets(map(_advised, answer.advice))]


def _advised(one: AdvicePart) -> str:
    left = f"{one.spare_gib:.2f} to spare" if one.spare_gib >= 0 else f"{-one.spare_gib:.2f} missing"
    words = {"fits": "fits", "tight": "tight", "does not fit": "still does not fit"}[one.verdict]
    risk = f", runs out with {chance(one.p_oom)}" if one.verdict == "tight" and one.p_oom is not None else ""
    step = f"; step {_change(one.step_time_change)}"
    sizes = f"{one.after_gib:.2f} GiB instead of {one.before_gib:.2f} GiB, saves {one.saved_gib:.2f}"
    runs = "" if one.as_asked else f"; can be run by {', '.join(one.runnable_by) or 'no framework that is known'}"
    return f"{one.label}: {sizes}: {words}, {left}{risk}{step}{runs}"


def _change(share: float | None) -> str:
    if share is None:
        return "not predicted"
    return "unchanged" if abs(share) < 0.0005 else f"{share:+.1%}"


def _oom_view(found: OomPart) -> View:
    device = "" if found.gpu is None else f" on GPU {found.gpu}"
    device += "" if found.pipeline_rank is None else f", pipeline rank {found.pipeline_rank}"
    free = "" if found.free_gib is None else f"; {found.free_gib:.2f} GiB were free"
    lines: list[RenderableType] = [heading(f"a request of {_asked(found)}{device}{free}")]
    if len(found.read_as) > 1:
        names = dict.fromkeys(one.read_as for one in found.matches)
        lines.append(Text(f"read as {' and as '.join(found.read_as)}; matched as {', '.join(names) or 'neither'}"))
    if found.unused_gib is not None and found.unused_gib * GIB >= found.request_bytes:
        lines += bullets([
            f"PyTorch held {found.unused_gib:.2f} GiB that it did not use, in pieces: fragmentation. "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may be enough"
        ])  # fmt: skip
    if not found.matches:
        return [*lines, Text("matches nothing of this plan; the nearest:"), *bullets(map(_near, found.nearest))]
    expected = [one for one in found.matches if one.expected]
    outside = [one for one in found.matches if not one.expected]
    if expected:
        lines += [Text("it is" if len(found.matches) == 1 else "it is one of"), *bullets(map(_matched, expected))]
    if outside:
        words = "which this plan does not expect" if not expected else "or, which this plan does not expect,"
        lines += [Text(words), *bullets(map(_matched, outside))]
    return lines


def _matched(one: MatchPart) -> str:
    note = "" if one.exact else f", asked for in a block of {bytes_text(one.block_bytes)}"
    return _tensor(
        one, f"{note}, read as {one.read_as}" if one.read_as[:1] in "KMGT" and len(one.read_as) == 2 else note
    )


def _asked(found: OomPart) -> str:
    """The size, as it was written where it was written alone."""
    size = bytes_text(found.request_bytes)
    written = found.request.strip()
    return size if len(written) > 20 or written == size else f"{written} ({size})"


def _near(one: TensorPart) -> str:
    return f"{one.name} {_shape(one)}, of {', '.join(one.units)}: {one.why}"


def _shape(one: TensorPart) -> str:
    return f"[{', '.join(map(str, one.shape))}] {one.dtype}, {bytes_text(one.n_bytes)}"


def _tensor(one: TensorPart, note: str = "") -> str:
    several = len(one.pipeline_ranks) > 1
    where = f"{', '.join(one.units)} on pipeline rank{'s' if several else ''} {_runs(one.pipeline_ranks)}"
    less = f". Smaller with {one.shrink}" if one.shrink else ""
    return f"{one.name} {_shape(one)}{note}, of {where}: {one.why}{less}"


def _runs(ranks: Sequence[int]) -> str:
    """`0-3, 5`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _fit_view(found: Sequence[FitPart]) -> View:
    if not found:
        return []
    grid = table(["largest", "now", "fits", "GiB", "tight", "GiB", "next", "GiB"], left=("largest",))
    for kind in dict.fromkeys(one.kind for one in found):
        sure, likely = (next(o for o in found if o.kind == kind and o.safety == s) for s in ("fits", "tight"))
        size = "" if likely.parameters is None else f" ({count_text(likely.parameters)})"
        grid.add_row(
            f"{_FITS.get(kind, kind)}{size}", f"{sure.now:,}", _number(sure.largest), _size(sure.total_gib),
            _number(likely.largest), _size(likely.total_gib), _number(likely.next), _size(likely.next_gib),
        )  # fmt: skip
    return [
        heading("the largest that fits under this layout, one at a time (predicted)"),
        grid,
        Text("fits: runs out with less than 1 %; tight: with less than 50 %; next: the first that does not fit"),
    ]


def _traced_view(found: Sequence[TracedStagePart]) -> View:
    """Traced beside predicted, and what travels in a step."""
    if not found:
        return []
    grid = table(["pipeline rank", *[str(one.pipeline_rank) for one in found]], left=("pipeline rank",))
    rows: Sequence[tuple[str, Callable[[TracedStagePart], float]]] = (
        ("states", lambda one: one.states_gib), ("  predicted", lambda one: one.predicted_states_gib),
        ("activations", lambda one: one.activations_gib), ("  predicted", lambda one: one.predicted_activations_gib),
        ("logits", lambda one: one.logits_gib), ("  predicted", lambda one: one.predicted_logits_gib),
        ("at most in backward", lambda one: one.backward_peak_gib),
        ("in the optimizer step", lambda one: one.optimizer_peak_gib),
    )  # fmt: skip
    for name, figure in rows:
        grid.add_row(name, *[_size(figure(one)) for one in found])
    seconds = sum(one.seconds for one in found)
    moved = [
        f"rank {one.pipeline_rank}: "
        + ", ".join(f"{c.count:,} {c.kind} over {c.group} ({bytes_text(c.gib * GIB)})" for c in one.collectives)
        for one in found
        if one.collectives
    ]
    return [
        heading(f"GiB of tensors in our trainer's own step ({found[0].mode}; {seconds:.1f} s)"),
        grid,
        *([Text("messages of a step")] if moved else []),
        *bullets(moved),
    ]


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
