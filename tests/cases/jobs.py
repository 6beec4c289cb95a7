"""Jobs of the cases, as their texts."""

from pathlib import Path
from typing import Any

import meshwright


def job(folder: Path, model: str, cluster: str, batch: str, rest: str = "", runnable_by: str = "any") -> Path:
    """A job file with these lines in its tables; `rest` holds whole tables."""
    path = folder / "job.toml"
    path.write_text(
        f"[model]\n{model}\n[cluster]\n{cluster}\n[batch]\n{batch}\n{rest}\n[search]\nrunnable_by = '{runnable_by}'\n"
    )
    return path


def check(path: Path, *overrides: str) -> Any:
    """What `meshwright check --json` prints."""
    return meshwright.check(path, overrides=list(overrides))


def said(answer: Any, rule: str) -> str:
    """Message and legal values of one rule; fails where it has nothing to say."""
    (found,) = [one for one in (*answer["problems"], *answer["warnings"]) if one["rule"] == rule]
    return f"{found['message']} | {'; '.join(found['legal'])}"


def rules(answer: Any) -> list[str]:
    """The names of the errors."""
    return [one["rule"] for one in answer["problems"]]


def warned(answer: Any) -> list[str]:
    """The names of the warnings."""
    return [one["rule"] for one in answer["warnings"]]
