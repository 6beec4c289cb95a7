"""The floors hold, and the checker that says so would notice when they do not."""

import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# Run through the interpreter under test: a console script is not on the PATH when no environment is activated.
LINT = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    source = str(folder / "src")
    code = LINT[2].replace("from importlinter", f"import sys; sys.path.insert(0, {source!r}); from importlinter", 1)
    return subprocess.run([*LINT[:2], code, *LINT[3:]], cwd=folder, capture_output=True, text=True, timeout=120)


def test_no_room_imports_from_above_or_beside() -> None:
    result = _lint(REPOSITORY)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "0 broken" in result.stdout


def test_an_import_from_above_and_a_torch_import_are_both_noticed(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / "src/meshwright/layout/batch.py").open("a").write("\nimport meshwright.files.plan\nimport torch\n")
    result = _lint(tmp_path)
    assert result.returncode != 0
    assert "meshwright.layout.batch -> meshwright.files.plan" in result.stdout
    assert "meshwright.layout.batch -> torch" in result.stdout
