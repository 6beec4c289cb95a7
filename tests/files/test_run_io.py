"""The files of a run folder, written and read back."""

import errno
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.files import run_io
from meshwright.files.findings import Diagnosis, Finding, RankSplit
from meshwright.files.run import MeasuredUnits, RankMemory, RunResult, StepMetrics, UnitTime

STEP = StepMetrics(step=1, loss=6.98802, grad_norm=1.2832, lr=1e-3, tokens=2048, step_time_s=0.5, mode="measured")


def test_a_second_run_of_the_same_name_gets_its_own_folder(tmp_path: Path) -> None:
    folders = [run_io.new_run(tmp_path / "runs", "demo").root for _ in range(3)]
    assert [folder.name for folder in folders] == ["demo", "demo-2", "demo-3"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp"])
def test_run_names_stay_inside_their_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="plain folder name"):
        run_io.new_run(tmp_path, name)


def test_a_run_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot create the run folder") as caught:
        run_io.new_run(tmp_path / "file", "demo")
    assert "\n" not in str(caught.value)


finite = st.floats(allow_nan=False, width=64)


@given(st.lists(st.builds(
    StepMetrics, step=st.integers(0, 10**9), loss=finite, grad_norm=finite, lr=finite, tokens=st.integers(0, 10**12),
    step_time_s=finite, mode=st.sampled_from(["measured", "dilated", "emulated"]), dilation=st.floats(1, 100),
    window=st.integers(0, 9), profiled=st.booleans(),
), max_size=5))  # fmt: skip
def test_metrics_round_trip(tmp_path_factory: pytest.TempPathFactory, steps: list[StepMetrics]) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    path.touch()
    for step in steps:
        run_io.append_metrics(path, step)
    assert run_io.read_metrics(path) == tuple(steps)


def test_a_diverged_loss_is_still_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    run_io.append_metrics(path, replace(STEP, loss=math.nan, grad_norm=math.inf))
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    (read,) = run_io.read_metrics(path)
    assert math.isnan(read.loss)
    assert read.grad_norm == math.inf


def test_a_truncated_last_line_is_left_out_but_a_damaged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for number in (1, 2, 3):
        run_io.append_metrics(path, replace(STEP, step=number))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert [step.step for step in run_io.read_metrics(path)] == [1, 2]
    path.write_bytes(whole.replace(b'"step": 2', b'"step" 2'))
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2: is not JSON"):
        run_io.read_metrics(path)


def test_every_wrong_field_of_a_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    run_io.append_metrics(path, STEP)
    bad = path.read_text().replace('"loss"', '"los"').replace('"measured"', '"guessed"').replace("2048", "true")
    path.write_text(bad)
    with pytest.raises(InputError) as caught:
        run_io.read_metrics(path)
    said = str(caught.value)
    assert "line 1: los: unknown key (did you mean loss?)" in said
    assert "loss: is missing" in said
    assert 'mode = "guessed"' in said
    assert "tokens = true: must be a whole number" in said


UNITS = MeasuredUnits(
    {"embed": UnitTime(1e-4, 2e-4, 8), "layers.0.attn": UnitTime(0.01, 0.02, 8)}, 2, 128, 1, "none", "dilated"
)
MEMORY = (RankMemory(0, 100, 100, 200, 2**28), RankMemory(1, 90, 90, 180, 2**28))
RESULT = RunResult(
    "runs/demo", 5, 6.5, 7.0, 1234.5, 0.4, (0.39, 0.42), None, 0.25, 0.4, "dilated", 4.0, (0.39, 0.4, 0.42)
)
DIAGNOSIS = Diagnosis(
    inputs=("runs/demo",), mode="dilated", window="steps 3-5, 1.2 s",
    ranks=(RankSplit(0, 0.4, 0.3, 0.02, 0.0, 0.08, 0.05),),
    bubble={"ideal": 0.27, "observed": 0.6, "stage": 3}, memory={},
    findings=(Finding(
        "imbalance", (3,), (3,), "Stage 3 holds 5 of 8 layers.", {"compute_s": (0.1, 0.1, 0.1, 0.5)}, 0.6, 0.48, "high",
        {"layout.stages": (("embed", "layers.0-1"), ("layers.2-7", "head"))}, (0.4, 0.45, 0.5), "run again",
    ),),
    abstained=("copies: not recorded",), step_time_s=0.4,
)  # fmt: skip


def test_other_files_round_trip(tmp_path: Path) -> None:
    run_io.write_units(UNITS, tmp_path / "units.json")
    run_io.write_memory(MEMORY, tmp_path / "memory.json")
    run_io.write_result(RESULT, tmp_path / "result.json")
    run_io.write_findings(DIAGNOSIS, tmp_path / "findings.json")
    run_io.write_environment({"python": "3.11", "cores": 2}, tmp_path / "environment.json")
    assert run_io.read_units(tmp_path / "units.json") == UNITS
    assert run_io.read_memory(tmp_path / "memory.json") == MEMORY
    assert run_io.read_result(tmp_path / "result.json") == RESULT
    assert run_io.read_findings(tmp_path / "findings.json") == DIAGNOSIS
    assert run_io.read_environment(tmp_path / "environment.json") == {"python": "3.11", "cores": 2}
    for file in tmp_path.iterdir():
        assert json.loads(file.read_text())["format"] == 1
    assert len(list(tmp_path.iterdir())) == 5  # nothing partial is left behind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not readable as JSON"),
        ("[]", "unknown format"),
        ('{"format": 2}', "format = 2: unknown format"),
        ('{"format": 1, "ranks": [{"rank": 0}]}', r"ranks\[0\]\.weights: is missing"),
        ('{"format": 1, "ranks": 3}', "ranks = 3: must be a list"),
    ],
)
def test_wrong_files_are_input_errors(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "memory.json").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        run_io.read_memory(tmp_path / "memory.json")
    assert "memory.json" in str(caught.value)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        run_io.read_units(tmp_path / "units.json")


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-3])
def test_times_of_units_are_times(tmp_path: Path, value: float) -> None:
    units = MeasuredUnits({"embed": UnitTime(value, 1e-3, 4)}, 1, 128, 1, "none", "measured")
    run_io.write_units(units, tmp_path / "units.json")
    with pytest.raises(InputError, match=r"units\.json: units\.embed\.forward_s = .*must be a time"):
        run_io.read_units(tmp_path / "units.json")


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "memory.json"
    run_io.write_memory([], file)
    before = file.read_text()

    def full(self: Path, text: str, encoding: str) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")  # as `write` says it: without a name

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left") as caught:
        run_io.write_memory([RankMemory(0, 1, 1, 1, 1)], file)
    assert caught.value.filename == str(file)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.json"]
    assert file.read_text() == before
