"""0 fine, 1 the answer is no, 2 unreadable input or wrong usage; with --json exactly one object, no traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.later import LATER
from meshwright.cli.wrapper import guarded

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py


def test_fine(meshwright: Run) -> None:
    ended = meshwright("check", "fixed.toml", "--json")
    assert ended.code == 0
    assert ended.json()["valid"] is True
    assert ended.err == ""


def test_an_invalid_layout_is_a_no_with_its_own_object(meshwright: Run) -> None:
    ended = meshwright("check", "fixed.toml", "--set", "layout.dp=4", "--json")
    assert ended.code == 1
    answer = ended.json()
    assert answer["valid"] is False
    assert any(
        "cluster.gpus" in problem["fields"] or "layout.dp" in problem["fields"] for problem in answer["problems"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "nowhere.toml"), "there is no such file"),
        (("check", "fixed.toml", "--set", "layout.tpp=4"), "did you mean layout.tp?"),
        (("check", "fixed.toml", "--set", "layout.tp"), "must read table.key=value"),
        (("check", "fixed.toml", "--set", "cluster.gpu=H1000"), "cluster.gpu"),
        (("predict", "free.toml"), "`meshwright plan free.toml -o plan.toml` fills them"),
        (("plan", "free.toml", "-o", "free.toml"), "would overwrite"),
        (("plan", "free.toml", "-o", "no/where.toml"), "its folder does not exist"),
        (("plan", "free.toml", "--top", "0"), "--top"),
        (("plan",), "Missing argument"),
        (("plna", "free.toml"), "plan"),
        (("diagnose", "nowhere"), "there is no such file or folder"),
        (("diagnose", "fixed.toml", "--fail-on", "much"), "not a share of the step time"),
        (("rebalance", "nowhere"), "nowhere"),
        (("report", "nowhere"), "there is no such run folder or plan"),
        (("train", "fixed.toml", "--data", "nowhere"), "there is no such file or folder"),
        (("train", "fixed.toml", "--run", "../a"), "is not the name of a run folder"),
        (("tune", "free.toml", "--run", ""), "is not the name of a run folder"),
        (("init", "fixed.toml"), "exists already"),
        (("--colour",), "--colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_input_and_usage(meshwright: Run, arguments: tuple[str, ...], words: str) -> None:
    ended = meshwright(*arguments, "--json")
    assert ended.code == 2, ended.err
    error = ended.json()["error"]
    assert error["exit_code"] == 2
    assert words in error["message"]
    assert words in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("verb", LATER)
def test_verbs_that_are_not_there_yet_say_so_in_one_line(meshwright: Run, verb: str) -> None:
    ended = meshwright(verb, "anything", "--devices", "1,2")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert f"this version does not have `{verb}` yet" in ended.err
    assert verb in meshwright("--help").out


def test_nothing_fits(meshwright: Run) -> None:
    ended = meshwright("plan", "free.toml", "--set", "cluster.memory_gib=0.01", "--json")
    assert ended.code == 1
    assert ended.json()["error"]["exit_code"] == 1


def test_a_plan_that_does_not_fit_is_a_no(meshwright: Run) -> None:
    ended = meshwright("memory", "fixed.toml", "--set", "cluster.memory_gib=0.01", "--json")
    assert ended.code == 1
    assert ended.json()["fits"] is False


def test_binary_input(meshwright: Run, folder: Path) -> None:
    (folder / "bad.toml").write_bytes(bytes(range(256)))
    assert meshwright("check", "bad.toml").code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_a_full_disk_is_one_clear_line(folder: Path, extra: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "meshwright", "check", "fixed.toml", *extra]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "meshwright: No space left on device\n"


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "meshwright", "check", "fixed.toml"]
    ended = subprocess.run(command, cwd=folder, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_output_survives_a_terminal_without_unicode(meshwright: Run) -> None:
    ended = meshwright("check", "fixed.toml", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert ended.code == 0
    assert ended.out.isascii()


def test_an_unwritable_folder_is_one_clear_line(meshwright: Run, folder: Path) -> None:
    (folder / "plan.toml.partial").mkdir()
    ended = meshwright("plan", "free.toml", "-o", "plan.toml")
    assert ended.code == 2
    assert ended.err == "meshwright: plan.toml: Is a directory\n"


def _interrupted(arguments: object) -> object:
    raise KeyboardInterrupt


def _defect(arguments: object) -> object:
    raise ZeroDivisionError("a defect")


def test_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(_interrupted, ["plan", "--json"]) == 130
    assert '"exit_code": 130' in capsys.readouterr().out


def test_a_defect_of_ours_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(_defect, ["plan"]) == 3
    assert "ZeroDivisionError: a defect" in capsys.readouterr().err


def test_control_c_in_a_process(folder: Path) -> None:
    code = "import os, signal\nfrom meshwright.cli.wrapper import guarded\n" + (
        "raise SystemExit(guarded(lambda _: os.kill(os.getpid(), signal.SIGINT) or __import__('time').sleep(9), []))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert signal.SIGINT == 2
    assert (ended.returncode, ended.stderr) == (130, "meshwright: interrupted\n")


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_control_c_while_the_program_is_still_loading(folder: Path, extra: tuple[str, ...]) -> None:
    # The first import of the command-line library is interrupted, as a key pressed at once would.
    code = (
        "import sys\n"
        "class Key:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            sys.meta_path.remove(self)\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Key())\n"
        "from meshwright.cli.main import main\n"
        f"sys.argv[1:] = ['check', 'fixed.toml', *{extra}]\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "meshwright: interrupted\n")
    assert ('"exit_code": 130' in ended.stdout) is bool(extra)


def test_overrides_do_not_touch_the_file(meshwright: Run, folder: Path) -> None:
    before = (folder / "fixed.toml").read_bytes()
    meshwright("check", "fixed.toml", "--set", "layout.tp=2")
    assert (folder / "fixed.toml").read_bytes() == before
