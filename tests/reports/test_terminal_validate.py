"""What `validate` prints: the counts, the errors with their sign, and only tables that say something."""

from typing import Any

import pytest
from rich.console import Console

from meshwright.files import outputs_validate as out
from meshwright.reports.terminal_validate import validate_view


def errors(count: int = 3, median: float | None = 0.1234) -> out.ErrorStatistics:
    return out.ErrorStatistics(
        rows=count, configurations=count, median_error=median, p90_error=median, worst_error=median, bias=-0.056,
        within_range=0.875,
    )  # fmt: skip


NONE = out.ErrorStatistics(
    rows=0, configurations=0, median_error=None, p90_error=None, worst_error=None, bias=None, within_range=None
)
NO_RANKING = out.RankingPart(
    groups=0, layouts=0, kendall_tau=None, mean_regret=None, worst_regret=None, best_found=None, by_place={}, each=[]
)


def answer(**changes: Any) -> out.ValidateOutput:
    values: dict[str, Any] = {
        "rows": 3, "scored": 3, "extrapolated": 0, "skipped": [], "unscored": [], "unknown_columns": [],
        "step_time": errors(), "memory": NONE, "ranking": NO_RANKING, "trusted": NONE,
        "memory_verdicts": out.MemoryVerdictsPart(out_of_memory=0, foreseen=0, ran=3, refused=0),
        "by_source": {"one": errors()}, "by_gpu": {"A100": errors(2), "H100": errors(1)}, "by_parallelism": {},
        "by_trust": {}, "memory_by_source": {}, "assumptions": [], "worst": [],
    }  # fmt: skip
    return out.ValidateOutput(**{**values, **changes})


def shown(found: out.ValidateOutput, width: int = 80) -> str:
    console = Console(width=width, highlight=False, markup=False, emoji=False, force_terminal=False)
    with console.capture() as captured:
        for part in validate_view(found):
            console.print(part)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= width
    return "\n".join(lines)


def test_errors_and_the_sign_of_the_bias() -> None:
    text = shown(answer())
    assert "3 rows: 3 scored, 0 skipped" in text
    (line,) = [line for line in text.splitlines() if line.startswith("step time  ")]
    assert line.split() == ["step", "time", "3", "12.3", "%", "12.3", "%", "-5.6", "%", "88%"]
    assert "bias is positive where too much is predicted" in " ".join(text.split())


def test_a_table_of_one_line_says_nothing_new() -> None:
    text = shown(answer())
    assert "step time by GPU" in text
    assert "by source" not in text


def test_reasons_and_unknown_columns() -> None:
    text = shown(answer(
        rows=9, skipped=[out.SkippedPart(rows=4, kind="nonsense", reason="dp 2 = 2, but gpus is 8", same_reason=False,
                                         ids=["a", "b", "c", "d"])],
        unscored=[out.UnscoredPart(rows=2, reason="no step time")],
        unknown_columns=[out.UnknownColumnPart(column="step_time", nearest="step_time_s")],
    ))  # fmt: skip
    assert "9 rows: 3 scored, 4 skipped, 2 without a figure to compare" in text
    assert "skipped 4: such as dp 2 = 2, but gpus is 8 (a, b, c, …)" in text
    assert "not compared 2: no step time" in text
    assert "unknown columns, left out: step_time (did you mean step_time_s?)" in text


def test_nothing_measured_is_said() -> None:
    text = shown(answer(scored=0, step_time=NONE, by_source={}, by_gpu={}))
    assert "no step time or memory was measured that could be compared" in text
    assert "0.0 %" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_answer_fits(width: int) -> None:
    group = out.RankedGroupPart(
        source="a log", model="GPT", gpu="A100-80GB-SXM", gpus=512, global_batch=1024, seq_len=2048, precision="bf16",
        extrapolated=False, layouts=9, kendall_tau=0.5, regret=0.12, first_choice="dp 64 × tp 8, micro-batch 1",
        first_choice_measured_s=11.2, best="dp 32 × tp 8 × pp 2, micro-batch 1", best_measured_s=10.0,
    )  # fmt: skip
    statistics = {
        "groups": 1, "layouts": 9, "kendall_tau": 0.5, "mean_regret": 0.12, "worst_regret": 0.12, "best_found": 0.0,
    }  # fmt: skip
    worst = out.WorstRowPart(
        id="row-1", source="a log", gpu="A100-80GB-SXM", gpus=512, layout="dp 64 × tp 8 × pp 1, recompute full",
        measured_s=10.0, measured_from="step time", predicted_s=25.0, error=1.5,
        terms={"compute": 0.6, "dp_comm": 0.3, "host": 0.1}, assumed=[],
    )  # fmt: skip
    total = out.RankingStatistics(**statistics)
    text = shown(answer(
        ranking=out.RankingPart(by_place={"several nodes": total}, each=[group], **statistics),
        worst=[worst], by_source={"a very long name of a source " * 4: errors(), "b": errors()},
        assumptions=[out.AssumptionPart(rows=2, assumption="links between nodes: 25 GB/s a device")],
    ), width)  # fmt: skip
    plain = " ".join(text.split())
    assert "is chosen, dp 32 × tp 8 × pp 2, micro-batch 1 (10.00 s) is best: +12.0 %" in plain
    assert "+150.0 %" in plain
    assert "2 × links between nodes: 25 GB/s a device" in plain


def test_a_fit_and_a_refused_one() -> None:
    part = out.FitPart(
        written="machine.toml", refused="", rows=12, median_error_before=0.2, median_error_left_out=0.03,
        scales={"compute": 1.25, "host": 1.0}, unseen=["host"], gpu="A100-80GB-SXM", links=["nvlink3"],
    )  # fmt: skip
    text = " ".join(shown(answer(fit=part)).split())
    assert "median error 20.0 % before, 3.0 % on rows left out of the fit" in text
    assert 'machine = "machine.toml", its links by these names: nvlink3' in text
    assert "host: left as it is" in text
    refused = part.model_copy(update={"written": None, "refused": "it does not help"})
    assert "no fit of this machine - it does not help" in " ".join(shown(answer(fit=refused)).split())
