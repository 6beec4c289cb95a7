"""`tune.md`: the loop's notebook: what was believed, what was changed, what was measured."""

from meshwright.basics.quantities import seconds_text
from meshwright.files.patch import change_text
from meshwright.files.strict_json import write_whole
from meshwright.layout.degrees import describe
from meshwright.loop.measure import Measurement
from meshwright.loop.outcome import Step, TuneResult


def _percent(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.0%}" for value in values)


def _measured(label: str, measurement: Measurement) -> list[str]:
    result = measurement.result
    windows = ", ".join(seconds_text(window) for window in result.windows)
    lines = [
        f"- {label} ({result.mode}"
        + (f", K = {result.dilation:g}" if result.mode == "dilated" else "")
        + f"): step {seconds_text(result.step_time_s)}; {len(result.windows)} repeats: {windows}",
        f"- loss {result.first_loss:.4f} -> {result.loss:.4f} over {result.steps} steps",
        f"- share of the window not computing, by rank: {_percent(measurement.idle_fraction)}",
    ]
    lines += [f"- finding: {finding.cause}" for finding in measurement.diagnosis.findings]
    return lines


def _turn(number: int, step: Step) -> list[str]:
    low, high = step.measured_gain_range
    return [
        f"## Change {number}: {change_text(step.change)}",
        "",
        f"- why: {step.reason}",
        f"- predicted: step {seconds_text(step.predicted.step_time_s)}, {step.predicted_gain:.1%} saved; "
        f"not computing {_percent(step.predicted.idle_fraction)} by pipeline rank",
        *_measured("measured", step.after),
        f"- measured gain: {step.measured_gain:.1%} (worst and best pairing of repeats {low:.1%} to {high:.1%})",
        f"- {'kept' if step.kept else 'undone: the gain is not beyond the spread'}",
        "",
    ]


def journal_text(result: TuneResult) -> str:
    """The whole notebook as Markdown."""
    plan = result.first.plan
    lines = [
        f"# Tuning {plan.setup.name}",
        "",
        f"Comparisons are made in {result.mode} mode; times are device seconds.",
        "",
        "## First plan",
        "",
        f"- {result.ranking.evaluated} layouts compared; chosen: {describe(plan.layout)}, "
        f"micro-batch {plan.batch.micro_batch} x {plan.batch.micro_batches}",
        f"- predicted before measuring anything: step {seconds_text(result.cold.step_time_s)}",
        f"- predicted from the unit times that this run measured: step {seconds_text(result.warm.step_time_s)}",
        *_measured("measured", result.first),
        "",
    ]
    for number, step in enumerate(result.steps, 1):
        lines += _turn(number, step)
    lines += ["## End", "", f"- {result.stopped}"]
    lines += [f"- not made: {change_text(c.change)} (predicted {c.predicted_gain:.1%})" for c in result.left]
    return "\n".join(lines) + "\n"


def write_journal(result: TuneResult) -> None:
    """Write `tune.md` into the loop's folder."""
    write_whole(result.folder.journal, journal_text(result))
