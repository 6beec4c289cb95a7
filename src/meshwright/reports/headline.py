"""The words and figures of a page: what was chosen, predicted beside measured, findings, stages, settings."""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.basics.quantities import GIB, bytes_text, count_text, seconds_text
from meshwright.files.findings import Finding
from meshwright.files.patch import change_text
from meshwright.files.prediction import Prediction
from meshwright.files.run import RunResult
from meshwright.layout.degrees import describe
from meshwright.model.flops import CONVENTION
from meshwright.model.units import compact
from meshwright.reports.memory_bars import HELD, held_bytes
from meshwright.reports.picture import Table
from meshwright.reports.story import RunView, Story


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline figure: predicted beside measured, each None when there is none, and remarks."""

    name: str
    predicted: str | None
    measured: str | None
    mode: str  # of the measured figure
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """The top of the page."""

    chosen: str  # the layout in one line
    job: str  # model, devices, batch
    verdict: str  # one sentence
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One finding as people read it."""

    run: str
    where: str
    cause: str
    cost: str
    confidence: str
    change: str
    gain: str
    verify: str
    evidence: tuple[tuple[str, str], ...]


def headline(story: Story) -> Headline:
    """The layout, the job and the figures of the plan shown: of the run that the plan was kept from, if any ran."""
    view = shown_run(story)
    plan = view.plan if view else story.plan
    prediction = view.prediction if view else story.plan.prediction
    proposal = plan.setup.proposal
    arch, cluster, batch = proposal.arch, proposal.cluster, plan.batch
    job = (
        f"{arch.name or arch.family}: {arch.layers} layers, hidden {arch.hidden}; "
        f"{cluster.gpus} × {cluster.device.name}; "
        f"global batch {batch.global_batch} = micro-batch {batch.micro_batch} × {batch.micro_batches} × dp "
        f"{plan.layout.dp}, {batch.seq_len} tokens a sample; {proposal.training.precision}"
    )
    result = view.result if view else None
    return Headline(describe(plan.layout), job, _verdict(story), _tiles(prediction, result, view))


def shown_run(story: Story) -> RunView | None:
    """The run of the plan that was kept: of a loop its last kept change, else its first run; else the last run."""
    if not story.runs:
        return None
    by_name = {view.name: view for view in story.runs}
    kept = [turn.after for turn in story.turns if turn.kept]
    if kept:
        return by_name[kept[-1]]
    return story.runs[0] if story.turns or story.stopped else story.runs[-1]


def _verdict(story: Story) -> str:
    if story.turns:
        kept = [turn for turn in story.turns if turn.kept]
        parts = [
            f"{change_text(turn.change)}: predicted to save {turn.predicted_gain:.1%} of the step, measured "
            f"{turn.measured_gain:.1%} ({turn.measured_gain_range[0]:.1%} to {turn.measured_gain_range[1]:.1%} over "
            "the repeats)"
            for turn in kept
        ]
        undone = len(story.turns) - len(kept)
        if undone:
            parts.append(f"{undone} change{'s' if undone > 1 else ''} undone: no gain beyond the spread of the repeats")
        return "; ".join(parts) + "."
    if story.stopped:
        return f"Nothing was changed: {story.stopped}."
    view = shown_run(story)
    if view is None:
        return "Nothing has run yet: every figure on this page is predicted."
    if view.result is None:
        return "The run recorded no result."
    return (
        f"{view.result.steps} steps; loss {view.result.first_loss:.4f} to {view.result.loss:.4f}; step time in "
        f"{_mode(view.result)} mode."
    )


def _mode(result: RunResult) -> str:
    return f"{result.mode} (K = {result.dilation:g})" if result.mode == "dilated" else result.mode


def _tiles(prediction: Prediction | None, result: RunResult | None, view: RunView | None) -> tuple[Tile, ...]:
    p, r = prediction, result
    mode = r.mode if r else ""
    basis = view.basis if view else ""
    tiles = []

    def tile(name: str, predicted: str | None, measured: str | None, *remarks: str, mode: str = mode) -> None:
        if predicted is not None or measured is not None:
            tiles.append(Tile(name, predicted, measured, mode, remarks))

    remarks = []
    if p is not None:
        low, high = p.step_time_range_s
        remarks.append(f"predicted {basis}".strip() + f": range {seconds_text(low)} to {seconds_text(high)}")
    if r is not None:
        low, high = r.step_time_spread
        remarks.append(f"{_mode(r)}: repeats {seconds_text(low)} to {seconds_text(high)}")
    if p is not None and r is not None and r.step_time_s > 0:
        remarks.append(f"prediction off by {p.step_time_s / r.step_time_s - 1:+.1%}")
    tile("step time", seconds_text(p.step_time_s) if p else None, seconds_text(r.step_time_s) if r else None, *remarks)
    tile(
        "tokens a second", count_text(round(p.tokens_per_s)) if p else None,
        count_text(round(r.tokens_per_s)) if r else None,
        "over all devices",
    )  # fmt: skip
    tile(
        "pipeline bubble", _share(p.bubble_fraction if p else None), _share(r.bubble_fraction if r else None),
        "mean idle share of the pipeline ranks until the last action ends, uneven stages included",
    )  # fmt: skip
    mfu = f"model FLOPs a second over the dense peak; {CONVENTION}"
    tile("MFU", _share(p.mfu if p else None), _share(r.mfu if r else None), mfu)
    if p is not None:
        whole = f"limit {bytes_text(p.memory_limit_bytes)}" + ("" if p.fits else ": does not fit")
        peak = None if r is None or r.memory_gib is None else bytes_text(r.memory_gib * GIB)
        remarks = [whole, *["measured: the most bytes of tensors alive at once"] * (peak is not None)]
        tile("memory, worst rank", bytes_text(p.worst_memory.total), peak, *remarks, mode="measured")
    if p is not None and view is not None and view.memory:
        predicted = max(sum(stage.parts.get(kind, 0) for kind in (*HELD, "master")) for stage in p.memory)
        held = max(held_bytes(rank) for rank in view.memory)
        remark = "weights, gradients and optimizer of the worst rank"
        tile("model states", bytes_text(predicted), bytes_text(held), remark, mode="measured")
    return tuple(tiles)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def findings(story: Story) -> tuple[FindingLine, ...]:
    """The findings of all runs that were diagnosed, in the order of the runs."""
    return tuple(
        _finding(view.name, finding)
        for view in story.runs
        if view.diagnosis is not None
        for finding in view.diagnosis.findings
    )


def _cost(finding: Finding) -> str:
    share = "" if finding.share is None else f"{finding.share:.1%}"
    if finding.cost_s_per_step is None:
        return f"{share} of the step" if share else "not known in time"
    return f"{seconds_text(finding.cost_s_per_step)} a step" + (f" ({share})" if share else "")


def _finding(run: str, finding: Finding) -> FindingLine:
    where = [
        f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:16]))}{' …' * (len(numbers) > 16)}"
        for noun, numbers in (("rank", finding.ranks), ("stage", finding.stages))
        if numbers
    ]
    gain = ""
    if finding.predicted_gain is not None:
        low, expected, high = finding.predicted_gain
        gain = f"{expected:.1%} of the step ({low:.1%} to {high:.1%})"
    return FindingLine(
        run=run, where="; ".join(where), cause=finding.cause,
        cost=_cost(finding), confidence=finding.confidence,
        change=change_text(finding.change) if finding.change else "", gain=gain, verify=finding.verify,
        evidence=tuple((key, _value(value)) for key, value in finding.evidence.items()),
    )  # fmt: skip


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items())
    return str(value)


def stages_table(story: Story) -> Table:
    """Which units each stage holds, on which pipeline rank, with the rank's predicted computing."""
    view = shown_run(story)
    layout = (view.plan if view else story.plan).layout
    prediction = view.prediction if view else story.plan.prediction
    rows = []
    for stage, units in enumerate(layout.stages):
        rank = layout.placement[stage]
        cells = [str(stage), str(rank), ", ".join(compact(units))]
        if prediction is not None:
            cells += [seconds_text(prediction.stage_compute_s[rank]), f"{prediction.idle_fraction[rank]:.0%}"]
        rows.append(tuple(cells))
    head = ["stage", "pipeline rank", "units"]
    if prediction is not None:
        head += ["the rank computes (predicted)", "not computing (predicted)"]
    return Table(tuple(head), tuple(rows))


def settings(story: Story) -> Mapping[str, Table]:
    """Where the figures come from: the predictor's constants by origin, and the environment of the run."""
    view = shown_run(story)
    prediction = view.prediction if view else story.plan.prediction
    tables = {}
    if prediction is not None and prediction.origins:
        rows = tuple((name, str(origin)) for name, origin in sorted(prediction.origins.items()))
        tables["Constants of the prediction"] = Table(("constant", "origin"), rows)
    if view is not None and view.environment:
        rows = tuple((key, _value(value)) for key, value in view.environment.items())
        tables["Environment of the run"] = Table(("what", "value"), rows)
    return tables
