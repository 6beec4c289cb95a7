"""What each verb's answer looks like in a terminal: 80 columns, readable without colour, every figure with its mode."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files import outputs as out
from meshwright.reports.terminal_parts import (
    bullets,
    count_of,
    heading,
    running_out,
    table,
)

View = Sequence[RenderableType]

_ORIGINS = {"file": "from the model's config.json", "detected": "detected on this machine"}


def _problems(title: str, style: str, problems: Sequence[out.ProblemPart]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for problem in problems:
        fields = (
            field if origin == "user" else f"{field} ({_ORIGINS.get(origin, origin)})"
            for field, origin in zip(problem.fields, problem.origins, strict=True)
        )  # fmt: skip
        parts.append(Text.assemble((f"{title} ", style), f"{', '.join(fields)} [{problem.rule}]"))
        parts += bullets([problem.message], indent=2, mark="")
        parts += bullets(problem.legal, indent=4)
    return parts


def check_view(answer: out.CheckOutput) -> View:
    """Errors first, then warnings, then the equation."""
    verdict = Text("valid", "bold green") if answer.valid else Text("not valid", "bold red")
    counts = f": {count_of(len(answer.problems), 'error')}, {count_of(len(answer.warnings), 'warning')}"
    return [
        *_problems("error", "bold red", answer.problems),
        *_problems("warning", "bold yellow", answer.warnings),
        *_nearby(answer.nearby),
        Text(answer.model.text),
        *([Text(f"note: {answer.model.note}")] if answer.model.note else []),
        Text(answer.batch.equation),
        *_open(answer),
        Text.assemble(verdict, counts),
    ]


def _open(answer: out.CheckOutput) -> View:
    """What the verdict does not say."""
    if answer.undecided:
        return [Text(f"left open: {', '.join(answer.undecided)}; whether any choice fits in memory: `meshwright plan`")]
    if not answer.thriftiest:
        return []
    words = f"left open: {', '.join(answer.thriftiest)}; memory is judged with the choice that needs least"
    return [Text(f"{words} (`memory` and `predict` take ZeRO-0 where layout.zero is not given)")]


def _nearby(found: Sequence[out.NearbyPart]) -> View:
    """What to choose instead, and how much plain data parallelism would gain."""
    if not found:
        return []
    grid = table(["layout", "step", "tok/s/GPU", "GiB"], left=("layout",))
    for one in found:
        words = f"{one.layout}, micro-batch {one.micro_batch} × {one.micro_batches}{running_out(one.p_oom)}"
        grid.add_row(words, seconds_text(one.step_time_s), f"{one.tokens_per_s_per_gpu:,.0f}", f"{one.memory_gib:.1f}")
    near = min((one.step_time_s for one in found if one.kind == "neighbour"), default=None)
    simple = min((one.step_time_s for one in found if one.kind == "plain"), default=None)
    rows: list[RenderableType] = [heading("instead (predicted)"), grid]
    if near is not None and simple is not None:
        gain = 1 - simple / near
        words = f"{abs(gain):.0%} {'less' if gain > 0 else 'more'} time a step than the fastest of the others"
        rows.append(Text(f"plain data parallelism: {words} (predicted)"))
    return rows


def init_view(answer: out.InitOutput) -> View:
    """What was found, and what to do next."""
    found = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.detected.items() if value is not None)
    return [
        Text(f"wrote {answer.path} for this machine ({found})"),
        Text(f"next: meshwright plan {answer.path}"),
    ]
