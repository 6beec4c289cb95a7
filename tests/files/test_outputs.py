"""What verbs print has the documented keys, and our values fit into it."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from meshwright.files import outputs_run as ran
from meshwright.files.convert import check_output, diagnose_output, plan_entry, train_output
from meshwright.files.document import LATER, VERBS, schema_markdown
from meshwright.files.findings import Diagnosis, Finding, RankSplit
from meshwright.files.job import parse_job
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import plan_of
from meshwright.files.prediction import Prediction, StageMemory
from meshwright.files.resolve import setup_of
from meshwright.files.run import RunResult
from meshwright.layout.problem import Problem

from .complete_job import COMPLETE

KEYS = {
    "check": "valid problems warnings batch layout",
    "memory": "stages worst_stage p_oom recipe advice",
    "plan": "evaluated seconds plans rejected",
    "validate": "rows scored skipped step_time memory ranking by_source by_gpu",
    "train": "run steps loss tokens_per_s mfu bubble_fraction memory_gib mode",
    "parity": "equal compared first_difference table",
    "diagnose": "inputs window ranks bubble memory findings abstained",
    "compare": "figures significant verdict",
    "rebalance": "before after moves predicted_gain",
    "rehearse": "run steps loss tokens_per_s mfu bubble_fraction memory_gib mode",
    "scale": "points efficiency law knee loss_split",
    "calibrate": "devices links coefficients",
    "tune": "plan prediction measured journal findings report",
    "export": "files not_expressible",
    "import": "files not_expressible",
    "report": "path",
    "explore": "path",
    "why": "terms",
    "predict": "layout micro_batch micro_batches stages step_time_s step_time_range_s tokens_per_s_per_gpu mfu "
    "bubble_fraction exposed_comm_s memory_gib runnable_by why",
}


def predicted(step_s: float = 1.5, bubble_s: float = 0.5) -> Plan:
    plan = plan_of(parse_job(COMPLETE))
    prediction = Prediction(
        step_time_s=step_s, step_time_range_s=(1.2, 1.9), tokens_per_s=341.3, tokens_per_s_per_gpu=85.3, mfu=None,
        bubble_fraction=0.25, exposed_comm_s=0.01, terms={"compute": 1.0, "bubble": bubble_s},
        stage_compute_s=(0.5, 1.0), idle_fraction=(0.6, 0.3), memory_limit_bytes=2**31, fits=True,
        memory=(StageMemory(0, (0,), {"weights": 2**30}, 2), StageMemory(1, (1,), {"weights": 2**31}, 1)),
        origins={"peak": "data sheet"},
    )  # fmt: skip
    return Plan(plan.setup, plan.layout, plan.batch, prediction)


@pytest.mark.parametrize("verb", KEYS)
def test_top_keys_are_those_of_the_design(verb: str) -> None:
    model = {**VERBS, **LATER}[verb]
    assert set(KEYS[verb].split()) <= set(model.model_fields)
    assert model.model_fields["format"].default == 1
    assert next(iter(model.model_fields)) == "format"


@pytest.mark.parametrize("model", [*VERBS.values(), *LATER.values()], ids=lambda model: model.__name__)
def test_objects_that_carry_figures_name_their_mode(model: type[BaseModel]) -> None:
    timed = any(name.endswith(("_s", "_s_per_gpu")) for name in model.model_fields)
    assert not timed or "mode" in model.model_fields


def test_plan_entry() -> None:
    entry = plan_entry(predicted(), ("meshwright",), "the fastest")
    data = json.loads(entry.model_dump_json())
    assert data["memory_gib"] == 2.0  # the fuller of the two ranks
    assert data["mode"] == "predicted"
    assert data["mfu"] is None
    assert data["stages"] == [["embed", "layers.0-1"], ["layers.2-3", "head"]]
    assert data["layout"]["placement"] == [0, 1]


def test_a_plan_without_a_prediction_has_no_figures() -> None:
    plan = plan_of(parse_job(COMPLETE))
    with pytest.raises(ValueError, match="no prediction"):
        plan_entry(plan, (), "")


def test_check_separates_errors_from_warnings() -> None:
    problems = (
        Problem("world-size", "error", ("layout.dp",), "16 GPUs, not 8", ("dp 1",)),
        Problem("bubble", "warning", ("batch.micro_batches",), "the bubble is 40 %"),
    )
    answer = check_output(setup_of(parse_job(COMPLETE)).proposal, problems)
    assert not answer.valid
    assert [p.rule for p in answer.problems] == ["world-size"]
    assert [p.rule for p in answer.warnings] == ["bubble"]
    data = json.loads(answer.model_dump_json(by_alias=True))
    assert data["batch"]["equation"] == "global 16 = micro_batch 2 · micro_batches 4 · dp 2"
    assert data["batch"]["global"] == 16
    assert data["layout"]["zero"] is None  # free


def test_a_loss_that_is_not_a_number_is_null() -> None:
    result = RunResult("runs/a", 3, float("nan"), 5.0, 10.0, 0.5, (0.4, 0.6), None, None, None, "dilated", 4.0, (0.5,))
    data = json.loads(train_output(result).model_dump_json())
    assert data["loss"] is None
    assert (data["mode"], data["dilation"]) == ("dilated", 4.0)
    assert data["bubble_fraction"] is None  # not recorded is not 0


def test_diagnosis() -> None:
    finding = Finding("imbalance", (3,), (3,), "stage 3", {"ratio": 1.9}, 0.1, 0.2, "high", {}, None, "run again")
    split = RankSplit(0, 1.0, 0.5, 0.2, 0.0, 0.3, 0.4)
    answer = diagnose_output(Diagnosis(("runs/a",), "dilated", "steps 3-5", (split,), {}, {}, (finding,), ("memory",)))
    rank = answer.ranks[0]
    assert rank.compute_s + rank.exposed_comm_s + rank.exposed_copy_s + rank.idle_s == pytest.approx(rank.window_s)
    assert answer.findings[0].predicted_gain is None
    assert answer.abstained == ["memory"]


def test_unknown_keys_do_not_slip_into_an_answer() -> None:
    with pytest.raises(ValidationError):
        ran.ReportOutput(path="a", colour="red")  # type: ignore[call-arg]


def test_the_documented_schemas_are_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "schemas.md"
    assert page.read_text(encoding="utf-8") == schema_markdown(), "run: make docs"


def test_the_page_documents_every_key() -> None:
    page = schema_markdown()
    for model in (*VERBS.values(), *LATER.values()):
        section = page[page.index(f"### {model.__name__}\n") :].partition("\n### ")[0]
        for name, field in model.model_fields.items():
            assert f"| `{field.alias or name}` |" in section
