"""The tables of the accuracy page, from an answer whose figures are known."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy_tables", DOCS / "accuracy_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def errors(count: int, median: float | None) -> dict[str, float | int | None]:
    return {
        "rows": count, "configurations": count, "median_error": median, "p90_error": 0.2, "worst_error": 0.3,
        "bias": -0.012, "within_range": 0.9,
    }  # fmt: skip


def test_errors_are_shares_with_a_sign_for_the_bias(tables: ModuleType) -> None:
    made = tables.by_gpu({"by_gpu": {"A100": errors(12, 0.0814), "a|b": errors(1, None)}})
    assert made.splitlines()[2:] == [
        "| A100 | 12 | 8.1 % | 20.0 % | -1.2 % | 90 % |",
        r"| a\|b | 1 |  | 20.0 % | -1.2 % | 90 % |",
    ]


def test_rare_assumptions_are_counted(tables: ModuleType) -> None:
    parts = [{"rows": 30 - n, "assumption": f"thing {n}"} for n in range(23)]
    made = tables.assumptions({"assumptions": parts}).splitlines()
    assert made[0] == "- 30 × thing 0"
    assert made[-1] == "- and 3 rarer ones"


def test_the_template_asks_for_every_table_once(tables: ModuleType) -> None:
    text = (DOCS / "templates" / "accuracy.md").read_text()
    asked = [
        line for line, before in zip(text.splitlines()[1:], text.splitlines(), strict=False) if before == "```table"
    ]
    assert set(asked) == set(tables.TABLES)
    assert sorted(asked) == sorted([*tables.TABLES, "ranking"])  # of the sweep too
