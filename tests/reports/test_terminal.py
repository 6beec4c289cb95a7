"""Answers in a terminal: 80 columns, no colour needed, every figure with its mode, nothing invented."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType

from meshwright.files import outputs as out
from meshwright.files import outputs_run as ran
from meshwright.reports import terminal, terminal_plan, terminal_run, terminal_tune


def shown(parts: Sequence[RenderableType], width: int = 80) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False, no_color=True)
    for part in parts:
        console.print(part)
    text = stream.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    return "\n".join(line.rstrip() for line in text.splitlines())


LAYOUT = out.LayoutPart(
    dp=2, tp=2, pp=2, cp=1, ep=1, etp=1, vpp=1, sp=True, zero=1, shard_group=None, schedule="1f1b", recompute="full",
    recompute_layers=None, bucket_mib=25.0, overlap=True, placement=[0, 1],
)  # fmt: skip


def entry(**changes: object) -> out.PlanEntry:
    values: dict[str, object] = {
        "mode": "predicted", "layout": LAYOUT, "micro_batch": 16, "micro_batches": 4,
        "stages": [["embed", "layers.0-11"], ["layers.12-23", "head"]], "step_time_s": 4.871,
        "step_time_range_s": (3.6, 6.1), "tokens_per_s": 107_615.0, "tokens_per_s_per_gpu": 13_451.9, "mfu": 0.317,
        "bubble_fraction": 0.319, "exposed_comm_s": 0.0038, "stage_compute_s": [2.0, 2.5], "memory_gib": 17.44,
        "memory_limit_gib": 39.39, "p_oom": 0.0, "fits": True, "runnable_by": ["megatron"],
        "terms": {"compute": 3.8, "bubble": 1.071},
        "origins": {"peak": "data sheet"}, "why": "fastest: compute 78%",
    }  # fmt: skip
    return out.PlanEntry.model_validate({**values, **changes})


def train(**changes: object) -> ran.TrainOutput:
    values: dict[str, object] = {
        "mode": "dilated", "run": "runs/a", "steps": 6, "loss": 5.25, "first_loss": 6.5, "tokens_per_s": 2120.0,
        "step_time_s": 0.1208, "step_time_spread_s": (0.118, 0.124), "windows_s": [0.118, 0.124], "mfu": None,
        "bubble_fraction": None, "memory_gib": None, "dilation": 4.0,
    }  # fmt: skip
    return ran.TrainOutput.model_validate({**values, **changes})


FINDING = ran.FindingPart(
    kind="imbalance", ranks=[3], stages=[3], evidence={"ratio": 1.9}, cause="stage 3 computes 1.9 times the mean",
    cost_s_per_step=0.1, share=0.3, confidence="high", change={"layout.stages": [["embed"], ["head"]]},
    predicted_gain=(0.2, 0.25, 0.3), verify="run again and compare the idle time of ranks 0 to 2",
)  # fmt: skip


def test_plan_ranking() -> None:
    answer = out.PlanOutput(evaluated=11_235, seconds=0.5, plans=[entry(), entry(why="bubble +210 ms")], rejected=[])
    text = shown(terminal_plan.plan_view(answer))
    assert "11,235 layouts in 0.5 s; all figures predicted" in text
    assert "13,452" in text
    assert "31.7 %" in text
    assert "17.4/39" in text
    assert "dp 2 × tp 2 × pp 2" in text
    assert "2  bubble +210 ms" in text
    assert "left out" not in text


def test_long_lists_of_rejections_are_cut_and_counted() -> None:
    rejected = [out.RejectedPart(family=f"dp {n}", count=1000, reason="too large") for n in range(9)]
    text = shown(terminal_plan.plan_view(out.PlanOutput(evaluated=1, seconds=0.1, plans=[entry()], rejected=rejected)))
    assert text.count("too large") == 6
    assert "- dp 0 (1,000 layouts): too large" in text
    assert "and 3 more families: --json lists all" in text


def test_unknown_figures_are_unknown_and_not_zero() -> None:
    text = shown(terminal_run.train_view(train()))
    assert "MFU         unknown; bubble unknown" in text
    assert "memory      not recorded" in text
    assert "dilated, K = 4" in text
    assert "loss        6.5000 -> 5.2500 over 6 steps" in text
    assert "not a number" in shown(terminal_run.train_view(train(loss=None)))


def test_diagnosis_split_and_findings() -> None:
    rank = ran.RankPart(
        rank=0, window_s=0.1, compute_s=0.05, exposed_comm_s=0.02, exposed_copy_s=0.0, idle_s=0.03, comm_s=0.02,
        unclassified_s=0.0,
    )  # fmt: skip
    answer = ran.DiagnoseOutput(
        mode="dilated", inputs=["runs/a"], window="steps 3-5", step_time_s=0.1, ranks=[rank], memory={},
        bubble={"schedule": "1f1b", "observed": 0.438, "excess_s": 0.0293}, findings=[FINDING],
        abstained=["memory: not recorded"],
    )  # fmt: skip
    text = shown(terminal_run.diagnose_view(answer))
    for piece in ("(dilated;", "50.0  50%", "20.0  20%", "30.0  30%", "observed 43.8 %", "excess a step 29.3 ms"):
        assert piece in text
    assert "finding imbalance: 100.0 ms a step (30.0 %), confidence high" in text
    assert "gain: 25.0 % of the step (20.0 % to 30.0 %), predicted" in text
    assert "not said: memory: not recorded" in text


def test_no_findings_are_said() -> None:
    assert shown(terminal_run.findings_view([])) == "no findings"


def figures(**changes: object) -> out.PlanFigures:
    """The same plan without a place in a ranking."""
    return out.PlanFigures.model_validate({key: v for key, v in entry(**changes).model_dump().items() if key != "why"})


def diagnosis(*compute_s: float) -> ran.DiagnoseOutput:
    """Ranks that compute so long in a window of 100 ms and idle for the rest."""
    ranks = [
        ran.RankPart(
            rank=rank, window_s=0.1, compute_s=busy, exposed_comm_s=0.0, exposed_copy_s=0.0, idle_s=0.1 - busy,
            comm_s=0.0, unclassified_s=0.0,
        )
        for rank, busy in enumerate(compute_s)
    ]  # fmt: skip
    return ran.DiagnoseOutput(
        mode="dilated", inputs=["runs/a"], window="steps 3-5", step_time_s=0.1, ranks=ranks, bubble={}, memory={},
        findings=[FINDING], abstained=[],
    )  # fmt: skip


def test_tuning_shows_predicted_beside_measured() -> None:
    first = ran.TunedRunPart(
        run="runs/t/run-1", prediction=figures(), measured=train(), diagnosis=diagnosis(0.02, 0.09)
    )
    after = ran.TunedRunPart(
        run="runs/t/run-2", prediction=figures(), measured=train(), diagnosis=diagnosis(0.06, 0.07)
    )
    step = ran.JournalPart(
        change={"layout.stages": [["embed", "layers.0.attn", "layers.0.ffn"], ["head"]]}, reason="imbalance",
        changed_plan=figures(step_time_s=4.0), predicted=0.41, measured=0.39, measured_range=(0.35, 0.42), kept=True,
        after=after,
    )  # fmt: skip
    answer = ran.TuneOutput(
        mode="dilated", plan="runs/t/plan.toml", prediction=figures(), first=first, findings=[FINDING], journal=[step],
        changed_plan=step.changed_plan, predicted_gain=0.41, measured_gain=0.39, measured=train(), remaining=[],
        ranking=[entry()], unfixed=[entry()], report="runs/t/report.html", stopped="1 change made",
    )  # fmt: skip
    text = shown(terminal_tune.tune_view(answer))
    saved = next(line for line in text.splitlines() if line.startswith("saved"))
    assert "41.0 %" in saved
    assert "39.0 % (35.0 % to 42.0 %)" in saved
    idle = next(line for line in text.splitlines() if line.startswith("not computing, pipeline rank 0"))
    assert "50.0 %" in idle  # predicted: 2 s of 4 s
    assert "40.0 %" in idle  # measured: 60 ms of 100 ms
    assert "embed, layers.0 | head" in " ".join(text.split())
    assert "finding imbalance" in text
    assert text.rstrip().endswith("runs/t/report.html")


@pytest.mark.parametrize("width", [80, 120])
def test_texts_of_users_are_never_read_as_markup(width: int) -> None:
    problem = out.ProblemPart(
        rule="x", fields=["layout.dp"], origins=["user"], message="[red]stages[/red] [layout]", legal=["[a]"]
    )
    batch = out.BatchPart.model_validate(
        {"global": 8, "seq_len": 1, "micro_batch": None, "micro_batches": None, "dp": None, "equation": "global 8"}
    )
    model = out.ModelPart(name="m", text="[b]m[/b]: 4 layers", parameters=1, active_parameters=1, note="[i]x[/i]")
    answer = out.CheckOutput(
        valid=False, problems=[problem], warnings=[], model=model, batch=batch, layout={}, nearby=[]
    )
    text = shown(terminal.check_view(answer), width)
    assert "[red]stages[/red] [layout]" in text
    assert "- [a]" in text
    assert "[b]m[/b]: 4 layers" in text
    assert "note: [i]x[/i]" in text
    assert "not valid: 1 error, 0 warnings" in text


@pytest.mark.parametrize(("chance", "said"), [(None, False), (0.001, False), (0.02, True), (0.47, True)])
def test_a_plan_that_may_run_out_says_so(chance: float | None, said: bool) -> None:
    answer = out.PlanOutput(evaluated=1, seconds=0.1, plans=[entry(p_oom=chance)], rejected=[])
    assert ("runs out of memory" in shown(terminal_plan.plan_view(answer), 100)) == said


@pytest.mark.parametrize(("chance", "said"), [(None, False), (0.001, False), (0.02, True), (0.47, True)])
def test_a_layout_beside_what_was_asked_says_that_it_may_run_out(chance: float | None, said: bool) -> None:
    batch = {"global": 8, "seq_len": 1, "micro_batch": 1, "micro_batches": 1, "dp": 8, "equation": "global 8"}
    near = out.NearbyPart(
        mode="predicted", kind="neighbour", layout="dp 8", micro_batch=1, micro_batches=1, step_time_s=1.0,
        tokens_per_s_per_gpu=1.0, memory_gib=70.0, p_oom=chance,
    )  # fmt: skip
    answer = out.CheckOutput(
        valid=True, problems=[], warnings=[], batch=out.BatchPart.model_validate(batch), layout={}, nearby=[near],
        model=out.ModelPart(name="m", text="m", parameters=1, active_parameters=1, note=""),
    )  # fmt: skip
    assert ("runs out of memory" in shown(terminal.check_view(answer), 100)) == said
