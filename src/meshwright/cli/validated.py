"""What `validate` answers, from what was found in a measured table."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from meshwright.basics.errors import bad_input
from meshwright.files import outputs_validate as out
from meshwright.files.rows import read_table
from meshwright.files.strict_json import write_whole
from meshwright.planner import accuracy, ranking
from meshwright.planner.accuracy import Errors, memory_error, step_error
from meshwright.planner.configurations import Skipped
from meshwright.planner.validate import Judged, judge, memory_verdicts
from meshwright.planner.validate_measured import MeasuredStep

PREDICTIONS = (
    "id", "predicted_step_time_s", "predicted_tokens_per_s_per_gpu", "predicted_peak_memory_gib", "low_step_time_s",
    "high_step_time_s", "skipped",
)  # fmt: skip
"""Columns of the table of predictions."""

_WORST = 60
_SAID_EVERY = 250  # rows


def validated(
    rows: Path, output: Path | None, plot: Path | None, machine: Path | None, progress: Callable[[str], None]
) -> out.ValidateOutput:
    """Judge a table; write the predictions, the picture and the fitted machine where asked. Raises InputError for a
    file that is no such table, or has no rows."""
    table = read_table(rows)
    read = list(table.rows)
    if not read:
        raise bad_input("has no rows: only a line of column names", file=str(rows))
    entries: list[Judged | Skipped] = []
    for number, row in enumerate(read, 1):
        entries.append(judge(row))
        if number % _SAID_EVERY == 0:
            progress(f"{number:,} of {len(read):,} rows predicted")
    if output is not None:
        write_whole(output, predictions_csv(entries))
    if plot is not None:
        from meshwright.reports.scatter import write_scatter

        write_scatter(entries, rows.name, plot)
    answer = validate_output(entries, table.unknown)
    if machine is None:
        return answer
    from meshwright.cli.fitted import fitted

    judged = [one for one in entries if isinstance(one, Judged)]
    return answer.model_copy(update={"fit": fitted(judged, rows.name, machine)})


def validate_output(
    entries: Sequence[Judged | Skipped], unknown: Sequence[tuple[str, str | None]]
) -> out.ValidateOutput:
    """The object that `validate --json` prints. `unknown`: columns that were left out, with the nearest known one."""
    judged = [one for one in entries if isinstance(one, Judged)]
    trusted = [one for one in judged if one.complete and one.row.trust in ("A", "B")]
    verdicts = memory_verdicts(judged)
    return out.ValidateOutput(
        rows=len(entries),
        scored=sum(one.scored for one in judged),
        extrapolated=sum(one.scored and one.extrapolated for one in judged),
        skipped=_skipped([one for one in entries if isinstance(one, Skipped)]),
        unscored=_unscored(judged),
        unknown_columns=[out.UnknownColumnPart(column=name, nearest=near) for name, near in unknown],
        step_time=_statistics(accuracy.errors(judged, step_error)),
        memory=_statistics(accuracy.errors(judged, memory_error)),
        memory_verdicts=out.MemoryVerdictsPart(
            out_of_memory=verdicts.out, foreseen=verdicts.foreseen, ran=verdicts.ran, refused=verdicts.refused
        ),
        ranking=_ranking(ranking.groups(judged)),
        trusted=_statistics(accuracy.errors(trusted, step_error)),
        by_source=_by(judged, accuracy.source_of, step_error),
        by_gpu=_by(judged, accuracy.gpu_of, step_error),
        by_parallelism=_by(judged, accuracy.parallelism_of, step_error),
        by_trust=_by(judged, accuracy.trust_of, step_error),
        memory_by_source=_by(judged, accuracy.source_of, memory_error),
        assumptions=[
            out.AssumptionPart(rows=count, assumption=text) for text, count in accuracy.assumptions(judged).items()
        ],
        worst=[_worst(one) for one in accuracy.worst(judged, step_error, _WORST)],
    )


def _statistics(found: Errors) -> out.ErrorStatistics:
    return out.ErrorStatistics(
        rows=found.rows, configurations=found.configurations, median_error=found.median, p90_error=found.p90,
        worst_error=found.worst, bias=found.bias, within_range=found.within,
    )  # fmt: skip


def _by(judged: Sequence[Judged], key_of: accuracy.KeyOf, error_of: accuracy.ErrorOf) -> dict[str, out.ErrorStatistics]:
    return {key: _statistics(found) for key, found in accuracy.errors_by(judged, key_of, error_of).items()}


def _skipped(skipped: Sequence[Skipped]) -> list[out.SkippedPart]:
    """By reason, whatever its figures; the most frequent first."""
    alike: dict[str, list[Skipped]] = {}
    for one in skipped:
        alike.setdefault(re.sub(r"\d[\d.,]*", "#", one.reason), []).append(one)
    return [
        out.SkippedPart(
            rows=len(part), reason=part[0].reason, same_reason=len({one.reason for one in part}) == 1,
            kind=part[0].kind, ids=[one.row.name for one in part],
        )
        for part in sorted(alike.values(), key=lambda part: -len(part))
    ]  # fmt: skip


def _unscored(judged: Sequence[Judged]) -> list[out.UnscoredPart]:
    reasons = Counter(str(one.step) for one in judged if not one.scored)
    return [out.UnscoredPart(rows=count, reason=reason) for reason, count in reasons.most_common()]


def _ranking(groups: Sequence[ranking.Group]) -> out.RankingPart:
    return out.RankingPart(
        **_ranked(ranking.ranking(groups)).model_dump(),
        by_place={place: _ranked(found) for place, found in ranking.ranking_by_place(groups).items()},
        each=[_group(group) for group in groups],
    )


def _ranked(found: ranking.Ranking) -> out.RankingStatistics:
    return out.RankingStatistics(
        groups=found.groups, layouts=found.layouts, kendall_tau=found.tau, mean_regret=found.mean_regret,
        worst_regret=found.worst_regret, best_found=found.best_found,
    )  # fmt: skip


def _group(group: ranking.Group) -> out.RankedGroupPart:
    shown = group.first.shown
    batch = shown.plan.batch
    return out.RankedGroupPart(
        source=shown.row.source, model=shown.row.model_name or shown.plan.setup.proposal.arch.name,
        gpu=accuracy.gpu_of(shown), gpus=shown.plan.layout.world, global_batch=batch.global_batch,
        seq_len=batch.seq_len, precision=shown.plan.setup.proposal.training.precision,
        extrapolated=group.extrapolated, layouts=len(group.choices), kendall_tau=group.tau, regret=group.regret,
        first_choice=shown.layout_text, first_choice_measured_s=group.first.measured_s,
        best=group.best.shown.layout_text, best_measured_s=group.best.measured_s,
    )  # fmt: skip


def _worst(one: Judged) -> out.WorstRowPart:
    assert isinstance(one.step, MeasuredStep)
    assert one.step_error is not None
    whole = one.prediction.step_time_s
    terms = sorted(one.prediction.terms.items(), key=lambda item: -item[1])
    return out.WorstRowPart(
        id=one.row.name, source=accuracy.source_of(one), gpu=accuracy.gpu_of(one), gpus=one.plan.layout.world,
        layout=one.layout_text, measured_s=one.step.seconds, measured_from=one.step.origin, predicted_s=whole,
        error=one.step_error, terms={name: seconds / whole for name, seconds in terms if seconds > whole / 1000},
        assumed=list(one.assumed),
    )  # fmt: skip


def predictions_csv(entries: Sequence[Judged | Skipped]) -> str:
    """One line a row of the table, in its order; a row that was skipped has its reason and no figures."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PREDICTIONS)
    writer.writerows(_line(one) for one in entries)
    return text.getvalue()


def _line(one: Judged | Skipped) -> tuple[str, ...]:
    if isinstance(one, Skipped):
        return (one.row.name, "", "", "", "", "", " ".join(one.reason.split()))
    found = one.prediction
    figures = (found.step_time_s, found.tokens_per_s_per_gpu, one.peak_gib, *found.step_time_range_s)
    return (one.row.name, *(f"{figure:.6g}" for figure in figures), "")
