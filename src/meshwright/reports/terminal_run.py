"""What the verbs that train, or read what training recorded, say in a terminal."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files import outputs_run as ran
from meshwright.reports.terminal import View
from meshwright.reports.terminal_inputs import tables_view
from meshwright.reports.terminal_parts import bullets, change_text, cost_text, count_of, heading, ms, percent, table
from meshwright.reports.terminal_plan import figures_view

_UNITS = "; ms a step and share; comm and copy where not covered by compute"


def train_view(answer: ran.TrainOutput) -> View:
    """What the run did."""
    mode = answer.mode if answer.mode != "dilated" else f"dilated, K = {answer.dilation:g}"
    low, high = answer.step_time_spread_s
    rows = [
        f"run         {answer.run}",
        f"loss        {_number(answer.first_loss)} -> {_number(answer.loss)} over {count_of(answer.steps, 'step')}",
        f"step        {seconds_text(answer.step_time_s)} ({seconds_text(low)} to {seconds_text(high)}), {mode}",
        f"tokens      {answer.tokens_per_s:,.0f}/s, {mode}",
        f"MFU         {percent(answer.mfu)}; bubble {percent(answer.bubble_fraction)}, {mode}",
    ]
    memory = (
        "not recorded" if answer.memory_gib is None else f"{answer.memory_gib:.2f} GiB on the fullest rank, measured"
    )
    return [*[Text(row) for row in rows], Text(f"memory      {memory}")]


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


def parity_view(answer: ran.ParityOutput) -> View:
    """A row a plan."""
    grid = table(["plan", "ranks", "last loss", "largest difference", "equal"], left=("plan",))
    for row in answer.table:
        difference = "" if row.largest_difference is None else f"{row.largest_difference:.3g}"
        last = f"{row.losses[-1]:.6f}" if row.losses else ""
        grid.add_row(row.plan, str(row.ranks), last, difference, "yes" if row.equal else "no")
    verdict = "the same training" if answer.equal else f"not the same training: {answer.first_difference}"
    return [heading(f"{count_of(answer.compared, 'step')} compared, measured"), grid, Text(verdict)]


def diagnose_view(answer: ran.DiagnoseOutput) -> View:
    """The split a rank, then the findings."""
    grid = table(["rank", "compute", "comm", "copy", "idle", "window"])
    for rank in answer.ranks:
        parts = (rank.compute_s, rank.exposed_comm_s, rank.exposed_copy_s, rank.idle_s)
        grid.add_row(str(rank.rank), *[_split(part, rank.window_s) for part in parts], ms(rank.window_s))
    known = {key: value for key, value in answer.bubble.items() if value not in (None, [])}
    bubble = [f"{_words(key)} {_evidence(key, value)}" for key, value in known.items()]
    return [
        heading(f"{answer.window} ({answer.mode}{_UNITS if answer.ranks else ''})"),
        *([grid] if answer.ranks else []),
        *([Text("pipeline: " + ", ".join(bubble))] if bubble else []),
        *tables_view({**{path: said for path, said in answer.memory.items() if _rows(said)}, **answer.tables}),
        *findings_view(answer.findings),
        *bullets([f"not said: {text}" for text in answer.abstained], mark=""),
    ]


def _rows(said: object) -> bool:
    """Is it a list of rows, as snapshots have, and not a run's own memory?"""
    return isinstance(said, list) and all(isinstance(row, dict) for row in said)


def _split(seconds: float, window: float) -> str:
    return f"{seconds * 1e3:.1f} {seconds / window:>4.0%}" if window else ms(seconds)


def _words(key: str) -> str:
    return (key.removesuffix("_s") + "_a_step" if key.endswith("_s") else key).replace("_", " ")


def _evidence(key: str, value: object) -> str:
    """A figure of a diagnosis: seconds by its key, shares as percent."""
    if isinstance(value, float):
        return ms(value) if key.endswith("_s") else percent(value) if 0 <= value <= 1 else f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def findings_view(findings: Sequence[ran.FindingPart]) -> View:
    """What is wrong, what it costs, what to change."""
    parts: list[RenderableType] = []
    for finding in findings:
        cost = f"{cost_text(finding.cost_s_per_step, finding.share)}, confidence {finding.confidence}"
        parts.append(Text.assemble(("finding ", "bold yellow"), f"{finding.kind}: {cost}"))
        lines = [finding.cause]
        if finding.change:
            lines.append("change: " + "; ".join(f"{key} = {change_text(v)}" for key, v in finding.change.items()))
        if finding.predicted_gain is not None:
            low, expected, high = finding.predicted_gain
            lines.append(f"gain: {percent(expected)} of the step ({percent(low)} to {percent(high)}), predicted")
        parts += bullets([*lines, f"verify: {finding.verify}"], indent=2, mark="")
    return parts or [Text("no findings")]


def rebalance_view(answer: ran.RebalanceOutput) -> View:
    """Before, after and the moves."""
    gain = f"{percent(answer.predicted_gain)} of the step saved, predicted from the measured unit times"
    if not answer.moves:
        return [*figures_view(answer.before, "as it is"), Text("no move is predicted to make the step shorter")]
    return [
        *figures_view(answer.before, "before"),
        *figures_view(answer.after, "after"),
        *bullets(answer.moves),
        Text(gain),
    ]


def report_view(answer: ran.ReportOutput) -> View:
    """Where the page is."""
    return [Text(f"wrote {answer.path}")]
