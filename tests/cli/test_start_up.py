"""The command line answers before the reader has let go of the key."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]  # the fixture `meshwright` of conftest.py


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
