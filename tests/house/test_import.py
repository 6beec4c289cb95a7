"""Importing meshwright is light: planning must start in a fraction of a second and work without torch."""

import subprocess
import sys


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return {line.split(".")[0] for line in result.stdout.splitlines()}


def test_the_package_itself_imports_none_of_its_dependencies() -> None:
    heavy = {"torch", "transformers", "numpy", "pydantic", "plotly", "jinja2", "msgspec", "typer", "rich"}
    assert not heavy & _modules_after("import meshwright; assert meshwright.__version__")


def test_planning_and_reports_start_without_torch_or_plotly() -> None:
    loaded = _modules_after("import meshwright.planner.rank, meshwright.files.job, meshwright.reports.page")
    assert "numpy" in loaded
    assert not {"torch", "transformers", "plotly"} & loaded
