"""What `validate` looks like in a terminal."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files import outputs_validate as out
from meshwright.reports.terminal_parts import bullets, count_of, heading, percent, table

View = Sequence[RenderableType]

_PARTS, _REASONS, _ASSUMED, _WORST, _GROUPS, _TERMS = 12, 6, 6, 5, 3, 3  # lines of each that are shown


def validate_view(answer: out.ValidateOutput) -> View:
    """How far to trust a prediction, then where not."""
    return [
        *_counts(answer),
        *_whole(answer),
        *_ranking(answer.ranking),
        *_by("step time by GPU", answer.by_gpu),
        *_by("step time by parallelism", answer.by_parallelism),
        *_by("step time by source", answer.by_source),
        *_by("step time by trust in the row", answer.by_trust),
        *_assumed(answer),
        *_worst(answer.worst),
        *_fit(answer.fit),
    ]


def _counts(answer: out.ValidateOutput) -> View:
    skipped, unscored = (sum(part.rows for part in parts) for parts in (answer.skipped, answer.unscored))
    line = f"{count_of(answer.rows, 'row')}: {answer.scored:,} scored, {skipped:,} skipped"
    found: list[RenderableType] = [heading(line + (f", {unscored:,} without a figure to compare" if unscored else ""))]
    if answer.extrapolated:
        found += bullets(
            [f"{answer.extrapolated:,} were extrapolated by their authors: they count in the ranking only"]
        )
    if answer.unknown_columns:
        names = (c.column + (f" (did you mean {c.nearest}?)" if c.nearest else "") for c in answer.unknown_columns)
        found += bullets([f"unknown columns, left out: {', '.join(names)}"])
    reasons = [
        f"skipped {part.rows:,}: {'' if part.same_reason else 'such as '}{part.reason} ({_some(part.ids)})"
        for part in answer.skipped
    ]
    reasons += [f"not compared {part.rows:,}: {part.reason}" for part in answer.unscored]
    found += bullets(reasons[:_REASONS])
    return [*found, *_more(len(reasons) - _REASONS, "reason")]


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:3]) + (", …" if len(ids) > 3 else "")


def _more(number: int, noun: str) -> View:
    return [Text(f"  and {count_of(number, 'more ' + noun)}: --json lists all")] if number > 0 else []


def _errors(title: str, rows: Sequence[tuple[str, out.ErrorStatistics]]) -> RenderableType:
    grid = table([title, "configs", "median", "p90", "bias", "in range"], left=(title,))
    for name, found in rows:
        grid.add_row(
            name, f"{found.configurations:,}", percent(found.median_error), percent(found.p90_error),
            signed(found.bias), "" if found.within_range is None else f"{found.within_range:.0%}",
        )  # fmt: skip
    return grid


def signed(share: float | None) -> str:
    """`+3.1 %`; `unknown` for None."""
    return "unknown" if share is None else f"{share * 100:+.1f} %"


def _whole(answer: out.ValidateOutput) -> View:
    rows = [("step time", answer.step_time)] if answer.step_time.configurations else []
    if 0 < answer.trusted.configurations < answer.step_time.configurations:
        rows.append(("  complete rows of trust A and B", answer.trusted))
    if answer.memory.configurations:
        rows.append(("peak memory", answer.memory))
    verdicts = answer.memory_verdicts
    said = []
    if not rows:
        said.append("no step time or memory was measured that could be compared")
    if verdicts.out_of_memory:
        said.append(f"of {count_of(verdicts.out_of_memory, 'run')} that ran out of memory {verdicts.foreseen} foreseen")
    if verdicts.refused:
        said.append(f"of {count_of(verdicts.ran, 'run')} that ran {verdicts.refused} called impossible")
    notes = "errors are predicted over measured, less 1: bias is positive where too much is predicted"
    return [*([_errors("predicted, against measured", rows), Text(notes)] if rows else []), *bullets(said)]


def _by(title: str, parts: Mapping[str, out.ErrorStatistics]) -> View:
    if len(parts) < 2:
        return []
    shown = list(parts.items())[:_PARTS]
    return [_errors(title, shown), *_more(len(parts) - _PARTS, "line")]


def _ranking(answer: out.RankingPart) -> View:
    if not answer.groups:
        return [Text("ranking: no job was measured with four layouts or more")]
    title = "ranking of layouts of one job"
    grid = table([title, "groups", "tau", "mean regret", "worst", "best found"], left=(title,))
    parts = {"all": answer, **answer.by_place} if len(answer.by_place) > 1 else answer.by_place
    for name, found in parts.items():
        tau = "unknown" if found.kendall_tau is None else f"{found.kendall_tau:.2f}"
        regrets = (percent(found.mean_regret), percent(found.worst_regret))
        grid.add_row(
            name, f"{found.groups:,}", tau, *regrets, "" if found.best_found is None else f"{found.best_found:.0%}"
        )
    lost = [_lost(group) for group in answer.each if group.regret]
    return [grid, *bullets(lost[:_GROUPS])]


def _lost(group: out.RankedGroupPart) -> str:
    first, best = seconds_text(group.first_choice_measured_s), seconds_text(group.best_measured_s)
    return (
        f"{group.model} on {group.gpus:,} {group.gpu}: {group.first_choice} ({first} measured) is chosen, {group.best} "
        f"({best}) is best: {signed(group.regret)}"
    )


def _assumed(answer: out.ValidateOutput) -> View:
    if not answer.assumptions:
        return []
    lines = [f"{part.rows:,} × {part.assumption}" for part in answer.assumptions]
    return [
        heading("assumed, because rows do not say"),
        *bullets(lines[:_ASSUMED]),
        *_more(len(lines) - _ASSUMED, "line"),
    ]


def _worst(rows: Sequence[out.WorstRowPart]) -> View:
    if not rows:
        return []
    grid = table(
        ["worst rows", "measured", "predicted", "error", "largest terms"], left=("worst rows", "largest terms")
    )
    for row in rows[:_WORST]:
        terms = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in list(row.terms.items())[:_TERMS])
        where = f"{row.id}: {row.gpus:,} {row.gpu}, {row.layout}"
        grid.add_row(where, seconds_text(row.measured_s), seconds_text(row.predicted_s), signed(row.error), terms)
    return [grid]


def _fit(found: out.FitPart | None) -> View:
    if found is None:
        return []
    if found.rows is None:
        return [heading("no fit of this machine"), *bullets([found.refused])]
    scales = [
        f"{name}: {scale:.2f} times the predicted time"
        if name not in found.unseen
        else f"{name}: left as it is, too little of these steps is spent there"
        for name, scale in found.scales.items()
    ]
    if found.refused:
        return [heading("no fit of this machine"), *bullets([found.refused, *scales])]
    before, after = percent(found.median_error_before), percent(found.median_error_left_out)
    links = f", its links by these names: {', '.join(found.links)}" if found.links else ""
    return [
        heading(f"fit of {found.gpu} to {count_of(found.rows, 'configuration')}"),
        *bullets([
            *scales, f"median error {before} before, {after} on rows left out of the fit",
            f'in a job: [cluster] machine = "{found.written}"{links}',
        ]),
    ]  # fmt: skip
