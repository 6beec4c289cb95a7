"""The command line answers before the reader has let go of the key."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py


def _seconds(arguments: list[str], folder: Path) -> float:
    """Processor seconds of one start: unlike wall time they do not count the other processes of this machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _least(arguments: list[str], folder: Path) -> float:
    return min(_seconds(arguments, folder) for _ in range(3))


def test_help(folder: Path) -> None:
    assert _least(["-m", "meshwright", "--help"], folder) < 0.25


def test_import(folder: Path) -> None:
    assert _least(["-c", "import meshwright"], folder) < 0.15


def test_check_and_plan(folder: Path) -> None:
    assert _least(["-m", "meshwright", "check", "fixed.toml"], folder) < 0.9  # half of it on a machine left alone
    assert _least(["-m", "meshwright", "plan", "free.toml"], folder) < 1.5


def test_help_loads_none_of_the_rooms(folder: Path) -> None:
    code = (
        "import sys\nfrom meshwright.cli.main import run\nrun(['--help'])\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('numpy', 'pydantic', 'torch', 'rich', 'plotly')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_planning_loads_no_torch(folder: Path) -> None:
    code = (
        "import sys\nfrom meshwright.cli.main import run\nassert run(['plan', 'free.toml']) == 0\n"
        "print('torch' in sys.modules, 'plotly' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.splitlines()[-1] == "False False"


def test_help_fits_80_columns_and_names_every_option(meshwright: Run) -> None:
    for verb in ("", "check", "plan", "train", "diagnose", "tune", "parity", "init", "why"):
        ended = meshwright(*([verb] if verb else []), "--help")
        assert ended.code == 0
        assert max(len(line) for line in ended.out.splitlines()) <= 80
        assert verb == "" or "--json" in ended.out
