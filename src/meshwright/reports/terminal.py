"""What each verb's answer looks like in a terminal: 80 columns, readable without colour, every figure with its mode."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import seconds_text
from meshwright.files import outputs as out
from meshwright.files.prediction import TIGHT
from meshwright.reports.terminal_parts import (
    bullets,
    count_of,
    gib_text,
    heading,
    layout_text,
    ms,
    percent,
    stages_text,
    step_text,
    table,
)

View = Sequence[RenderableType]

_LEFT_OUT = 6  # families that are listed
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
        Text.assemble(verdict, counts),
    ]


def _nearby(found: Sequence[out.NearbyPart]) -> View:
    """What to choose instead, and how much plain data parallelism would gain."""
    if not found:
        return []
    grid = table(["layout", "step", "tok/s/GPU", "GiB"], left=("layout",))
    for one in found:
        words = f"{one.layout}, micro-batch {one.micro_batch} × {one.micro_batches}"
        grid.add_row(words, seconds_text(one.step_time_s), f"{one.tokens_per_s_per_gpu:,.0f}", f"{one.memory_gib:.1f}")
    near = min((one.step_time_s for one in found if one.kind == "neighbour"), default=None)
    simple = min((one.step_time_s for one in found if one.kind == "plain"), default=None)
    rows: list[RenderableType] = [heading("instead (predicted)"), grid]
    if near is not None and simple is not None:
        gain = 1 - simple / near
        words = f"{abs(gain):.0%} {'less' if gain > 0 else 'more'} time a step than the fastest of the others"
        rows.append(Text(f"plain data parallelism: {words} (predicted)"))
    return rows


def _running_out(plan: out.PlanFigures) -> str:
    """What a plan that may not fit has beside its reason; nothing where it is sure enough."""
    if plan.p_oom is None or plan.p_oom < TIGHT:
        return ""
    return f"; tight: runs out of memory with a probability of {plan.p_oom:.0%}"


def plan_view(answer: out.PlanOutput) -> View:
    """The ranking, then a line a plan that says why."""
    grid = table(["#", "layout", "step", "tok/s/GPU", "MFU", "bubble", "GiB"], left=("layout",))
    for number, plan in enumerate(answer.plans, 1):
        grid.add_row(
            str(number), layout_text(plan), step_text(plan), f"{plan.tokens_per_s_per_gpu:,.0f}", percent(plan.mfu),
            percent(plan.bubble_fraction), gib_text(plan),
        )  # fmt: skip
    seconds = f"{answer.evaluated:,} layouts in {answer.seconds:.1f} s; all figures predicted"
    best, whys = answer.plans[0], [plan.why + _running_out(plan) for plan in answer.plans]
    return [
        heading(seconds),
        grid,
        *[row for number, why in enumerate(whys, 1) for row in bullets([why], mark=f"{number}  ")],
        *([Text("stages of the first: " + stages_text(best.stages))] if len(best.stages) > 1 else []),
        Text("the first can be run by: " + (", ".join(best.runnable_by) or "no framework that is known")),
        *_choices(answer.choices),
        *_left_out(answer.rejected),
    ]


def _choices(choices: Sequence[out.ChoicePart]) -> View:
    """What single choices would cost, the dearest first."""
    if not choices:
        return []
    grid = table(["choice", "step", "cost", "why"], left=("choice", "why"))
    for one in choices:
        step = "none fits" if one.step_time_s is None else seconds_text(one.step_time_s)
        cost = "" if one.cost is None else f"+{percent(max(0.0, one.cost))}"
        grid.add_row(f"{one.field} = {one.value}", step, cost, one.reason)
    return [heading("what single choices cost: the fastest plan that keeps each (predicted)"), grid]


def _left_out(rejected: Sequence[out.RejectedPart]) -> View:
    """The first families that were left out, and how many there are beyond them."""
    if not rejected:
        return []
    more = len(rejected) - _LEFT_OUT
    rest = f"and {count_of(more, 'more family', 'more families')}: --json lists all" if more > 0 else ""
    return [
        heading("left out"),
        *bullets([f"{r.family} ({count_of(r.count, 'layout')}): {r.reason}" for r in rejected[:_LEFT_OUT]]),
        *([Text(rest)] if rest else []),
    ]


def _terms(terms: Sequence[tuple[str, float]], whole: float) -> RenderableType:
    grid = table(["term", "a step", "share"], left=("term",))
    for name, seconds in terms:
        if seconds >= whole / 2000:
            grid.add_row(name.replace("_", " "), ms(seconds), percent(seconds / whole))
    return grid


def figures_view(plan: out.PlanFigures, title: str) -> View:
    """One plan's figures."""
    low, high = plan.step_time_range_s
    rows = [
        f"layout      {layout_text(plan)}",
        f"step        {seconds_text(plan.step_time_s)} ({seconds_text(low)} to {seconds_text(high)}), {plan.mode}",
        f"tokens      {plan.tokens_per_s:,.0f}/s, {plan.tokens_per_s_per_gpu:,.0f}/s a device, {plan.mode}",
        f"MFU         {percent(plan.mfu)}; bubble {percent(plan.bubble_fraction)}; "
        f"exposed communication {ms(plan.exposed_comm_s)}, {plan.mode}",
        f"memory      {plan.memory_gib:.2f} GiB of {plan.memory_limit_gib:.2f} GiB on the fullest rank, {plan.mode}"
        + (_running_out(plan) if plan.fits else ": does not fit"),
    ]
    if len(plan.stages) > 1:
        rows.append("stages      " + stages_text(plan.stages))
    return [heading(title), *[Text(row) for row in rows]]


def predict_view(answer: out.PredictOutput) -> View:
    """The figures, and what a step is made of."""
    ordered = sorted(answer.terms.items(), key=lambda item: -item[1])
    origins = sorted({f"{origin}" for origin in answer.origins.values()})
    return [
        *figures_view(answer, "one plan, predicted"),
        *_idle(answer),
        _terms(ordered, answer.step_time_s),
        Text("run by      " + (", ".join(answer.runnable_by) or "no framework that is known")),
        Text("constants   " + (", ".join(origins) or "none")),
    ]


def _idle(answer: out.PredictOutput) -> View:
    """The share of a step that each pipeline rank does not compute."""
    if len(answer.stage_compute_s) < 2:
        return []
    shares = [f"{1 - busy / answer.step_time_s:.0%}" for busy in answer.stage_compute_s]
    return [Text(f"idle        {', '.join(shares)} of a step by pipeline rank, {answer.mode}")]


def why_view(answer: out.WhyOutput) -> View:
    """A row a term, the largest difference first."""
    grid = table(["term", "first", "second", "difference"], left=("term",))
    for term in answer.terms:
        if term.first_s or term.second_s:
            grid.add_row(
                term.term.replace("_", " "), ms(term.first_s), ms(term.second_s), f"{_signed(term.difference_s)}"
            )
    total = answer.second_step_time_s - answer.first_step_time_s
    grid.add_row("step", ms(answer.first_step_time_s), ms(answer.second_step_time_s), _signed(total))
    return [
        heading(f"first: {answer.first}"),
        heading(f"second: {answer.second}"),
        grid,
        Text(f"all figures {answer.mode}"),
    ]


def _signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "") + ms(seconds)


def init_view(answer: out.InitOutput) -> View:
    """What was found, and what to do next."""
    found = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.detected.items() if value is not None)
    return [
        Text(f"wrote {answer.path} for this machine ({found})"),
        Text(f"next: meshwright plan {answer.path}"),
    ]
