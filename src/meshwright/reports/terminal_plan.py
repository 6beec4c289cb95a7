"""What `plan`, `predict` and `why` look like in a terminal."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from meshwright.basics.quantities import count_text, seconds_text
from meshwright.files import outputs as out
from meshwright.files.outputs_plan import BucketPart, BudgetPart, ParetoPart, RelaxationPart
from meshwright.reports.terminal_parts import (
    bullets,
    change_text,
    count_of,
    gib_text,
    heading,
    layout_text,
    ms,
    percent,
    running_out,
    stages_text,
    step_text,
    table,
)

View = Sequence[RenderableType]

_LEFT_OUT = 6  # families that are listed


def plan_view(answer: out.PlanOutput) -> View:
    """The ranking, then a line a plan that says why."""
    grid = table(["#", "layout", "step", "tok/s/GPU", "MFU", "bubble", "GiB"], left=("layout",))
    for number, plan in enumerate(answer.plans, 1):
        grid.add_row(
            str(number), layout_text(plan), step_text(plan), f"{plan.tokens_per_s_per_gpu:,.0f}", percent(plan.mfu),
            percent(plan.bubble_fraction), gib_text(plan),
        )  # fmt: skip
    seconds = f"{answer.evaluated:,} layouts in {answer.seconds:.1f} s; all figures predicted"
    best, whys = answer.plans[0], [plan.why + running_out(plan.p_oom) for plan in answer.plans]
    return [
        heading(seconds),
        grid,
        *[row for number, why in enumerate(whys, 1) for row in bullets([why], mark=f"{number}  ")],
        *([Text("stages of the first: " + stages_text(best.stages))] if len(best.stages) > 1 else []),
        Text("the first can be run by: " + (", ".join(best.runnable_by) or "no framework that is known")),
        *_front(answer.pareto),
        *_relaxed(answer.sensitivity),
        *_choices(answer.choices),
        *_left_out(answer.rejected),
    ]


def _front(points: Sequence[ParetoPart]) -> View:
    """From the fastest plan to the leanest."""
    if not points:
        return []
    grid = table(["GiB", "step", "slower", "layout"], left=("layout",))
    for one in points:
        words = f"{one.layout}, micro-batch {one.micro_batch} × {one.micro_batches}"
        grid.add_row(f"{one.memory_gib:.1f}", seconds_text(one.step_time_s), f"+{percent(one.slower)}", words)
    return [heading("less memory: the fastest plan within each (predicted)"), grid]


def _relaxed(changes: Sequence[RelaxationPart]) -> View:
    """What each relaxation of the job would gain, the most first."""
    if not changes:
        return []
    grid = table(["if there were", "tok/s", "gain", "layout"], left=("if there were", "layout"))
    for one in changes:
        rate = "" if one.tokens_per_s is None else f"{one.tokens_per_s:,.0f}"
        gain = "" if one.gain is None else f"{one.gain * 100:+.1f} %"
        words = one.layout if one.micro_batch is None else f"{one.layout}, micro-batch {one.micro_batch}"
        grid.add_row(one.change, rate, gain, words)
    return [heading("what one change would gain (predicted, each planned anew)"), grid]


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
    rows = {
        "layout": layout_text(plan),
        "step": f"{seconds_text(plan.step_time_s)} ({seconds_text(low)} to {seconds_text(high)}), {plan.mode}",
        "tokens": f"{plan.tokens_per_s:,.0f}/s, {plan.tokens_per_s_per_gpu:,.0f}/s a device, {plan.mode}",
        "MFU": f"{percent(plan.mfu)}{_hfu(plan)}; bubble {percent(plan.bubble_fraction)}, {plan.mode}",
        "exposed": f"{ms(plan.exposed_comm_s)} of communication{_by_group(plan)}, {plan.mode}",
        "memory": f"{plan.memory_gib:.2f} GiB of {plan.memory_limit_gib:.2f} GiB on the fullest rank, {plan.mode}"
        + (running_out(plan.p_oom) if plan.fits else ": does not fit"),
    }
    if plan.traffic_gb:
        sent = ", ".join(f"{group} {size:,.3g} GB" for group, size in plan.traffic_gb.items())
        rows["sends"] = f"{sent} a step and device"
        if plan.between_nodes_gb:
            rows["sends"] += f"; {plan.between_nodes_gb:,.3g} GB a node to other nodes"
    if len(plan.stages) > 1:
        rows["stages"] = stages_text(plan.stages)
    return [heading(title), *[line for name, text in rows.items() for line in named_row(name, text)]]


def _hfu(plan: out.PlanFigures) -> str:
    return "" if plan.hfu is None else f", HFU {percent(plan.hfu)}"


def _by_group(plan: out.PlanFigures) -> str:
    found = [f"{group} {ms(seconds)}" for group, seconds in plan.exposed_comm_by_group_s.items()]
    return f" ({', '.join(found)})" if found else ""


def named_row(name: str, text: str) -> View:
    """`memory      5.99 GiB of ...`: a name, and text that wraps under its own start."""
    return bullets([text], mark=f"{name:12}")


def predict_view(answer: out.PredictOutput) -> View:
    """The figures, and what a step is made of."""
    ordered = sorted(answer.terms.items(), key=lambda item: -item[1])
    origins = sorted({f"{origin}" for origin in answer.origins.values()})
    return [
        *figures_view(answer, "one plan, predicted"),
        *_idle(answer),
        *_budget(answer.budget),
        _terms(ordered, answer.step_time_s),
        *_buckets(answer.buckets),
        *named_row("run by", ", ".join(answer.runnable_by) or "no framework that is known"),
        *named_row("constants", ", ".join(origins) or "none"),
    ]


def _idle(answer: out.PredictOutput) -> View:
    """The share of a step that each pipeline rank does not compute."""
    if len(answer.stage_compute_s) < 2:
        return []
    shares = [f"{1 - busy / answer.step_time_s:.0%}" for busy in answer.stage_compute_s]
    return named_row("idle", f"{', '.join(shares)} of a step by pipeline rank, {answer.mode}")


def _buckets(buckets: Sequence[BucketPart]) -> View:
    """A row a size; the knee is marked."""
    if not buckets:
        return []
    grid = table(["bucket", "rounds", "buffer", "exchange", "latency", "step", ""])
    for one in buckets:
        grid.add_row(
            f"{one.mib:g} MiB", str(one.rounds), f"{one.buffer_gib:.2f} GiB", ms(one.exchange_s),
            percent(one.latency_share), seconds_text(one.step_time_s), "knee" if one.knee else "",
        )  # fmt: skip
    return [heading("buckets of the gradient exchange (predicted)"), grid]


def _budget(budget: BudgetPart | None) -> View:
    """What the tokens asked for take."""
    if budget is None:
        return []
    words = f"{count_text(budget.tokens)} tokens: {budget.steps:,} steps, {budget.days:,.1f} days, "
    words += f"{budget.gpu_hours:,.0f} GPU-hours"
    if budget.energy_mwh is not None:
        words += f", {budget.energy_mwh:,.1f} MWh (every board at its {budget.board_watts:,.0f} W all the time)"
    if budget.cost is not None:
        words += f", cost {budget.cost:,.0f}"
    return named_row("budget", f"{words}; without restarts and evaluation, predicted")


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
        *bullets([f"{d.field}: {change_text(d.first)} → {change_text(d.second)}" for d in answer.differs]),
        grid,
        Text(f"all figures {answer.mode}"),
    ]


def _signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "") + ms(seconds)
