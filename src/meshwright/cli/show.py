"""Standard output carries the answer, standard error the progress."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

Answer = TypeVar("Answer", bound="BaseModel")


def progress(line: str) -> None:
    """One line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


def print_json(data: object) -> None:
    """One JSON object, in ASCII so that any terminal and pipe takes it."""
    print(json.dumps(data, indent=2, allow_nan=False))


def show(answer: Answer, view: Callable[[Answer], Sequence["RenderableType"]], as_json: bool) -> None:
    """The answer as JSON, or as what `view` makes of it.."""
    if as_json:
        print_json(json.loads(answer.model_dump_json(by_alias=True)))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in view(answer):
            console.print(part)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_resolved(file: Path, overrides: Sequence[str], as_json: bool) -> None:
    """`--print-resolved`: every value of a job or plan with its origin."""
    from meshwright.files.job import read_job
    from meshwright.files.outputs import FORMAT
    from meshwright.files.resolve import resolved, resolved_text

    job = read_job(file, overrides)
    if not as_json:
        print(resolved_text(job), end="")
        return
    rows = {field: {"value": value, "origin": origin} for field, (value, origin) in resolved(job).items()}
    print_json({"format": FORMAT, "resolved": rows})
