"""The verbs that plan, through the command line and through Python: the same objects."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import meshwright as package
from meshwright.cli.application import VERBS
from meshwright.files.document import VERBS as DOCUMENTED

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py


def test_plan_writes_a_plan_that_every_other_verb_reads(meshwright: Run, folder: Path) -> None:
    ended = meshwright("plan", "free.toml", "-o", "plan.toml", "--top", "3", "--json")
    assert ended.code == 0, ended.err
    answer = ended.json()
    assert 1 <= len(answer["plans"]) <= 3
    assert ended.err == "wrote plan.toml\n"
    written = tomllib.loads((folder / "plan.toml").read_text())
    assert written["layout"]["dp"] == answer["plans"][0]["layout"]["dp"]
    assert written["prediction"]["step_time_s"] == answer["plans"][0]["step_time_s"]
    assert meshwright("check", "plan.toml", "--json").json()["valid"] is True
    predicted = meshwright("predict", "plan.toml", "--json").json()
    assert predicted["step_time_s"] == pytest.approx(answer["plans"][0]["step_time_s"])
    assert meshwright("memory", "plan.toml", "--json").json()["fits"] is True
    times = [plan["step_time_s"] for plan in answer["plans"]]
    assert times[1:] == sorted(times[1:])
    assert times[0] <= 1.05 * min(times)  # the plainest of what no prediction can tell apart comes first


def test_terms_sum_to_the_step(meshwright: Run) -> None:
    answer = meshwright("predict", "fixed.toml", "--json").json()
    assert sum(answer["terms"].values()) == pytest.approx(answer["step_time_s"])
    low, high = answer["step_time_range_s"]
    assert low <= answer["step_time_s"] <= high


def test_why_adds_up(meshwright: Run, folder: Path) -> None:
    (folder / "other.toml").write_text((folder / "fixed.toml").read_text().replace('"1f1b"', '"gpipe"'))
    answer = meshwright("why", "fixed.toml", "other.toml", "--json").json()
    moved = sum(term["difference_s"] for term in answer["terms"])
    assert moved == pytest.approx(answer["second_step_time_s"] - answer["first_step_time_s"], abs=1e-12)


def test_memory_parts_sum_to_the_total(meshwright: Run) -> None:
    answer = meshwright("memory", "fixed.toml", "--json").json()
    for stage in answer["stages"]:
        assert sum(stage["parts_gib"].values()) == pytest.approx(stage["total_gib"])
    fullest = max(answer["stages"], key=lambda stage: stage["total_gib"])
    assert answer["worst_stage"] == fullest["pipeline_rank"]


def test_memory_advice_is_computed(meshwright: Run) -> None:
    now = meshwright("memory", "fixed.toml", "--set", "batch.seq_len=4096", "--json").json()
    (advice,) = (one for one in now["advice"] if one["change"] == {"batch.micro_batch": 1})
    overrides = ("--set", "batch.seq_len=4096", "--set", "batch.micro_batch=1")
    then = meshwright("memory", "fixed.toml", *overrides, "--json").json()
    gib = [max(stage["total_gib"] for stage in answer["stages"]) for answer in (then, now)]
    assert [advice["after_gib"], advice["before_gib"]] == pytest.approx(gib)
    step = [meshwright("predict", "fixed.toml", *sets, "--json").json() for sets in (overrides, overrides[:2])]
    longer = step[0]["step_time_s"] / step[1]["step_time_s"] - 1
    assert advice["step_time_change"] == pytest.approx(longer)


def test_human_output_fits_80_columns_without_colour_codes(meshwright: Run) -> None:
    for arguments in (
        ("check", "fixed.toml"),
        ("plan", "free.toml"),
        ("predict", "fixed.toml"),
        ("memory", "fixed.toml"),
    ):
        ended = meshwright(*arguments)
        assert ended.code == 0, ended.err
        assert "\x1b" not in ended.out
        assert max(len(line) for line in ended.out.splitlines()) <= 80
        assert not any(line != line.rstrip() for line in ended.out.splitlines())
        assert arguments[0] == "check" or "predicted" in ended.out


def test_resolved_values_and_their_origin(meshwright: Run) -> None:
    ended = meshwright("check", "fixed.toml", "--set", "layout.zero=1", "--print-resolved", "--json")
    rows = ended.json()["resolved"]
    assert rows["layout.zero"] == {"value": 1, "origin": "user"}
    assert rows["training.optimizer"] == {"value": "adamw", "origin": "default"}
    printed = meshwright("plan", "free.toml", "--print-resolved")
    assert tomllib.loads(printed.out)["batch"] == {"global": 16, "seq_len": 128}


def test_init_writes_a_job_that_can_be_planned(meshwright: Run, folder: Path) -> None:
    ended = meshwright("init", "mine.toml", "--json")
    assert ended.code == 0, ended.err
    assert ended.json()["path"] == "mine.toml"
    assert meshwright("check", "mine.toml").code == 0
    assert meshwright("plan", "mine.toml").code == 0
    text = (folder / "mine.toml").read_text()
    for line in text.splitlines():  # what is commented out is legal as well
        assert line.count("#") <= 2
    assert meshwright("init", "mine.toml").code == 2
    assert meshwright("init", "mine.toml", "--force").code == 0


def test_report_of_a_plan(meshwright: Run, folder: Path) -> None:
    ended = meshwright("report", "fixed.toml", "--json")
    assert ended.code == 0, ended.err
    assert (folder / ended.json()["path"]).read_text().lstrip().lower().startswith("<!doctype html>")


def test_version(meshwright: Run) -> None:
    assert meshwright("--version").out == f"meshwright {package.__version__}\n"


def test_no_verb_shows_the_help(meshwright: Run) -> None:
    assert meshwright().out == meshwright("--help").out


def test_python_has_the_same_verbs_and_objects(folder: Path, meshwright: Run) -> None:
    assert {verb.__name__ for verb in VERBS} == set(package.VERBS)
    assert set(package.VERBS) <= set(DOCUMENTED)
    assert set(package.VERBS) <= set(dir(package))
    answer = package.predict(folder / "fixed.toml", overrides=["layout.zero=0"])
    printed = meshwright("predict", "fixed.toml", "--json").json()
    assert json.loads(json.dumps(answer)) == printed
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        _ = package.plam


def test_plan_prices_the_choices_of_another_job(meshwright: Run) -> None:
    """The worked example: no choice of its document makes the plan faster, and each is priced."""
    job = Path(__file__).parents[2] / "examples/worked-example/job.toml"
    answer = meshwright("plan", str(job), "--json").json()
    choices = {choice["field"]: choice for choice in answer["choices"]}
    assert {"dp", "tp", "pp", "micro_batch", "recompute"} <= set(choices)
    best = answer["plans"][0]["step_time_s"]
    for choice in choices.values():
        # The first plan is the plainest within half a percent of the fastest.
        assert choice["step_time_s"] > best * 0.995
        assert choice["cost"] == pytest.approx(choice["step_time_s"] / best - 1)
    # Full recompute repeats the forward, a quarter of the work: the dearest choice, about 4/3 on matrix products.
    assert answer["choices"][0]["field"] == "recompute"
    assert 0.15 < choices["recompute"]["cost"] < 0.34
