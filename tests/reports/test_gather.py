"""Stories from disk: a plan file, a run's folder, several, and the folder of a loop."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.files.patch import change_text
from meshwright.files.plan_toml import read_plan, write_plan
from meshwright.files.run import MeasuredUnits, RunFolder, UnitTime
from meshwright.files.run_io import append_metrics, write_findings, write_memory, write_result, write_units
from meshwright.predictor.step import predict
from meshwright.reports.gather import COLD, EARLIER, OWN, story_of
from meshwright.reports.page import write_report
from meshwright.timeline.storage import save

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop" / "uneven.toml"


def _write_run(root: Path, view, plan=None) -> RunFolder:
    """A run's folder with everything that `view` holds, and unit times of 2 ms forward and 4 ms backward."""
    folder = RunFolder(root)
    folder.spans.mkdir(parents=True)
    plan = plan or read_plan(EXAMPLE)
    write_plan(replace(plan, prediction=predict(plan)), folder.plan)
    write_result(view.result, folder.result)
    write_memory(view.memory, folder.memory)
    write_findings(view.diagnosis, folder.findings)
    for line in view.metrics:
        append_metrics(folder.metrics, line)
    for rank in range(4):
        mask = view.timeline.rank == rank
        save(replace(view.timeline.select(mask), recorded=(rank,)), folder.spans / f"rank{rank:05d}.npz")
    names = [unit for stage in plan.layout.stages for unit in stage]
    times = {name: UnitTime(0.002, 0.004, 8) for name in names}
    write_units(MeasuredUnits(times, 1, 128, 1, "none", "dilated"), folder.units)
    return folder


def test_a_run(tuned, tmp_path) -> None:
    folder = _write_run(tmp_path / "first", tuned.runs[0])
    story = story_of(folder.root)
    (view,) = story.runs
    assert (story.title, view.name) == ("Run first", "first")
    assert list(view.predictions) == [COLD, OWN]
    assert view.result == tuned.runs[0].result
    assert view.metrics == tuned.runs[0].metrics
    assert view.timeline is not None
    assert view.timeline.recorded == (0, 1, 2, 3)
    assert view.diagnosis is not None
    assert view.diagnosis.findings[0].kind == "imbalance"
    assert view.pipeline_rank_of == (0, 1, 2, 3)
    assert story.missing == ("first: the environment not recorded",)
    assert write_report(folder.root, folder.report) == folder.report
    assert "Timeline of a step" in folder.report.read_text()


def test_ranks_of_a_tensor_and_data_parallel_layout_map_to_pipeline_ranks(tuned) -> None:
    layout = replace(tuned.plan.layout, dp=2, tp=2, pp=2, stages=(("embed",), ("head",)), placement=(0, 1))
    view = replace(tuned.runs[0], plan=replace(tuned.plan, layout=layout))
    assert view.pipeline_rank_of == (0, 0, 0, 0, 1, 1, 1, 1)


def test_a_damaged_file_is_named_and_the_rest_is_shown(tuned, tmp_path) -> None:
    folder = _write_run(tmp_path / "first", tuned.runs[0])
    folder.memory.write_text("{")
    folder.findings.unlink()
    story = story_of(folder.root)
    assert story.runs[0].memory == ()
    assert any("memory unreadable" in line for line in story.missing)
    assert any("diagnosis" in line and "not recorded" in line for line in story.missing)


def test_a_loop(tuned, tmp_path) -> None:
    loop = RunFolder(tmp_path / "loop")
    for view in tuned.runs:
        _write_run(loop.root / view.name, view)
    plan = read_plan(EXAMPLE)
    write_plan(replace(plan, prediction=predict(plan)), loop.plan)
    stages = [["embed", "layers.0.attn", "layers.0.ffn"], ["head"]]
    entry = {
        "change": {"layout.stages": stages}, "reason": "stage 3 is slow", "before": "run-1", "after": "run-2",
        "predicted_gain": 0.5, "measured_gain": 0.45, "measured_gain_range": [0.4, 0.5], "kept": True,
    }  # fmt: skip
    summary = {"format": 1, "mode": "dilated", "stopped": "1 change made", "journal": [entry]}
    (loop.root / "tune.json").write_text(json.dumps(summary))
    story = story_of(loop.root)
    assert [view.name for view in story.runs] == ["run-1", "run-2"]
    assert list(story.runs[1].predictions) == [EARLIER]  # believed before run-2 was started, from what run-1 measured
    assert change_text(story.turns[0].change) == "layout.stages = embed, layers.0 | head"
    (loop.root / "tune.json").write_text("[]")
    with pytest.raises(InputError, match="unknown format"):
        story_of(loop.root)


def test_a_loop_that_changed_nothing(tuned, tmp_path) -> None:
    loop = RunFolder(tmp_path / "loop")
    _write_run(loop.root / "run-1", tuned.runs[0])
    write_plan(read_plan(EXAMPLE), loop.plan)
    nothing = {"format": 1, "mode": "dilated", "stopped": "nothing gains more than the noise", "journal": []}
    (loop.root / "tune.json").write_text(json.dumps(nothing))
    story = story_of(loop.root)
    assert [view.name for view in story.runs] == ["run-1"]
    assert write_report(loop.root, loop.report).exists()
    assert "Nothing was changed: nothing gains more than the noise." in loop.report.read_text()


def test_a_plan_file(tmp_path, out) -> None:
    story = story_of(EXAMPLE)
    assert story.plan.prediction is not None
    assert story.plan_timeline is not None
    assert story.plan_timeline.recorded == (0, 1, 2, 3)
    write_report(EXAMPLE, out)
    assert "every figure on this page is predicted" in out.read_text()


def test_several_runs_with_the_same_name_are_told_apart(tuned, tmp_path) -> None:
    folders = [_write_run(tmp_path / parent / "run", tuned.runs[0]).root for parent in "ab"]
    story = story_of(folders)
    assert [view.name for view in story.runs] == [str(folder) for folder in folders]


def test_what_is_neither_run_nor_plan(tmp_path) -> None:
    with pytest.raises(InputError, match=r"holds no plan\.toml"):
        story_of(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        story_of(tmp_path / "nowhere")
    with pytest.raises(InputError, match="nothing to report on"):
        story_of([])
