"""Small pieces of terminal output: tables, bullets, figures as people read them."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files.outputs import PlanFigures
from meshwright.files.prediction import TIGHT
from meshwright.layout.degrees import Layout, describe
from meshwright.model.units import compact


def heading(text: str) -> Text:
    """A line that starts a block."""
    return Text(text, "bold")


def table(columns: Sequence[str], left: Sequence[str] = ()) -> Table:
    """A table of figures: columns named in `left` hold words and may wrap, the others are aligned to the right."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for column in columns:
        words = column in left
        grid.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return grid


def running_out(p_oom: float | None) -> str:
    """What a layout that may not fit has beside its description; nothing where it is sure enough."""
    if p_oom is None or p_oom < TIGHT:
        return ""
    return f"; tight: runs out of memory with a probability of {p_oom:.0%}"


def bullets(lines: Iterable[str], indent: int = 0, mark: str = "- ") -> list[RenderableType]:
    """Lines that wrap under their own start. `mark` stands before each, `indent` spaces in."""
    found: list[RenderableType] = []
    for line in lines:
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(" " * indent + mark), Text(line))
        found.append(grid)
    return found


def count_of(number: int, noun: str, plural: str = "") -> str:
    """`1 step`, `3 steps`, `1,000 layouts`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ms(seconds: float) -> str:
    """Milliseconds with one decimal below ten seconds, else seconds."""
    return f"{seconds * 1e3:,.1f} ms" if abs(seconds) < 10 else seconds_text(seconds)


def percent(share: float | None) -> str:
    """`12.3 %`; `unknown` for None."""
    return "unknown" if share is None else f"{share * 100:.1f} %"


def cost_text(seconds: float | None, share: float | None) -> str:
    """`12.0 ms a step (3.0 %)`; says so where the input cannot tell."""
    if seconds is None:
        return "cost in time not known" if share is None else f"{percent(share)} of the step"
    return f"{ms(seconds)} a step ({percent(share)})"


def step_text(plan: PlanFigures) -> str:
    """The step time."""
    return seconds_text(plan.step_time_s)


def gib_text(plan: PlanFigures) -> str:
    """`34.2/39`: GiB on the fullest rank, of the GiB it may use."""
    return f"{plan.memory_gib:.{1 if plan.memory_gib >= 1 else 2}f}/{plan.memory_limit_gib:.0f}"


def layout_text(plan: PlanFigures) -> str:
    """`dp 2 × tp 2 × pp 2, 1f1b, ZeRO-1, recompute full, micro-batch 2 × 4`."""
    values = {**plan.layout.model_dump(), "placement": tuple(plan.layout.placement)}
    layout = Layout(stages=tuple(tuple(units) for units in plan.stages), **values)
    return f"{describe(layout)}, micro-batch {plan.micro_batch} × {plan.micro_batches}"


def stages_text(stages: Sequence[Sequence[str]]) -> str:
    """`embed, layers.0-3 | layers.4-7, head`."""
    return " | ".join(", ".join(_compact(units)) for units in stages)


def _compact(units: Sequence[str]) -> Sequence[str]:
    """Already compact spellings stay as they are."""
    return units if any("-" in unit for unit in units) else compact(units)


def change_text(value: object) -> str:
    """A changed value as people read it: stages in their short spelling."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return stages_text([list(units) for units in value])
    return str(value)
