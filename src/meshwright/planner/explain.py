"""Why one plan is faster than another, term by term, and what each fixed choice costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from meshwright.basics.errors import AnswerIsNo, bad_input
from meshwright.basics.names import nearest
from meshwright.basics.quantities import gib, seconds_text
from meshwright.files.plan import Plan
from meshwright.files.prediction import Prediction
from meshwright.files.setup import Setup
from meshwright.layout.degrees import Layout, describe
from meshwright.layout.proposal import Wanted
from meshwright.planner.candidates import Bench
from meshwright.predictor.constants import RESOLUTION
from meshwright.predictor.step import predict

WORDS: Mapping[str, str] = {
    "compute": "compute", "recompute": "recompute", "imbalance": "imbalance of stages", "bubble": "pipeline bubble",
    "tp_comm": "tensor communication", "cp_comm": "context communication", "ep_comm": "expert communication",
    "pp_comm": "hops between stages", "dp_comm": "gradient exchange", "optimizer": "optimizer", "host": "host",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """Seconds a step that one cause takes in each of two plans."""

    name: str
    first_s: float
    second_s: float

    @property
    def difference_s(self) -> float:
        """Second minus first: positive where the second plan loses time."""
        return self.second_s - self.first_s


def _prediction(plan: Plan) -> Prediction:
    return plan.prediction if plan.prediction is not None else predict(plan)


def why(first: Plan, second: Plan) -> tuple[Term, ...]:
    """The waterfalls of two plans side by side, the largest difference first. Differences sum to that of the steps."""
    a, b = _prediction(first).terms, _prediction(second).terms
    terms = [Term(name, a.get(name, 0.0), b.get(name, 0.0)) for name in dict.fromkeys([*a, *b])]
    return tuple(sorted(terms, key=lambda term: -abs(term.difference_s)))


def differences(first: Plan, second: Plan) -> tuple[tuple[str, object, object], ...]:
    """(field, first's value, second's) of every choice in which two plans differ; of stages how many units each has."""
    found: list[tuple[str, object, object]] = []
    for f in fields(Layout):
        a, b = getattr(first.layout, f.name), getattr(second.layout, f.name)
        if f.name == "stages":
            a, b = [len(stage) for stage in a], [len(stage) for stage in b]
        if f.name == "placement":
            a, b = list(a), list(b)
        if a != b:
            found.append((f.name, a, b))
    for name in ("micro_batch", "micro_batches", "global_batch", "seq_len"):
        a, b = getattr(first.batch, name), getattr(second.batch, name)
        if a != b:
            found.append((name, a, b))
    return tuple(found)


def _losses(best: Plan, other: Plan) -> str:
    """`pipeline bubble +210 ms, gradient exchange -12 ms`: what matters of the difference."""
    step = _prediction(best).step_time_s
    terms = [term for term in why(best, other) if abs(term.difference_s) >= 0.002 * step][:3] or why(best, other)[:1]
    return ", ".join(
        f"{WORDS[term.name]} {'+' if term.difference_s >= 0 else '-'}{seconds_text(abs(term.difference_s))}"
        for term in terms
    )


def why_ranked(plans: Sequence[Plan]) -> tuple[str, ...]:
    """For each plan of a ranking a sentence: what the first is made of, what made each other one lose."""
    first = _prediction(plans[0])
    shares = sorted(((seconds / first.step_time_s, name) for name, seconds in first.terms.items()), reverse=True)
    made_of = ", ".join(f"{WORDS[name]} {share:.0%}" for share, name in shares if share >= 0.01)
    fastest = min(_prediction(plan).step_time_s for plan in plans)
    behind = first.step_time_s / fastest - 1
    ahead = "fastest" if behind < 5e-4 else f"the plainest of those within {behind:.1%} of the fastest"
    sentences = [f"{ahead}: {made_of}"]
    for other in plans[1:]:
        slower = _prediction(other).step_time_s / first.step_time_s - 1
        if slower <= RESOLUTION.value:
            memory = gib(_prediction(other).worst_memory.total)
            by = f"{-slower:.1%} faster" if slower < -5e-4 else f"{slower:.1%} slower" if slower > 5e-4 else "as fast"
            sentences.append(f"{by}, less than a prediction can tell apart, but less plain; needs {memory}")
            continue
        sentences.append(f"{slower:.1%} slower than the first: {_losses(plans[0], other)}")
    return tuple(sentences)


@dataclass(frozen=True, slots=True)
class ChoiceCost:
    """What one fixed choice costs: the fastest plan that keeps it against the fastest plan without it.

    `step_s` is None when no plan can keep the choice, `reason` then says why.
    """

    field: str
    value: object
    step_s: float | None
    free_step_s: float
    plan: Plan | None
    reason: str

    @property
    def cost(self) -> float | None:
        """Share by which the step is longer."""
        return None if self.step_s is None else self.step_s / self.free_step_s - 1


def cost_of_choices(
    setup: Setup, chosen: Mapping[str, object], free_plan: Plan | None = None, bench: Bench | None = None
) -> tuple[ChoiceCost, ...]:
    """The predicted cost of each choice (keys of [layout], `micro_batch`, `micro_batches`): fixed one at a time, all
    else free, against the free optimum; the dearest first, impossible ones before all.

    What the job itself fixes is set free first; `free_plan` is the free optimum where it is known already, `bench` one
    that has planned this job. Raises InputError for an unknown key, AnswerIsNo when even the free space holds no plan.
    """
    from meshwright.planner.rank import ranked

    known = [f.name for f in fields(Wanted)]
    for name in chosen:
        if name not in known:
            near = nearest(name, known)
            raise bad_input("is not a part of a layout", field=f"layout.{name}", legal=f"did you mean {near}?")
    bench = bench or Bench(setup)
    best = free_plan or ranked(bench.pinned(Wanted()), top=1).plans[0]
    free = _prediction(best).step_time_s
    costs = []
    for name, value in chosen.items():
        pinned = replace(Wanted(), **{name: value})  # type: ignore[arg-type]
        try:
            kept = ranked(bench.pinned(pinned), top=1).plans[0]
        except AnswerIsNo as no:
            costs.append(ChoiceCost(name, value, None, free, None, no.message))
            continue
        step = _prediction(kept).step_time_s
        reason = f"{describe(kept.layout)}, micro-batch {kept.batch.micro_batch}: {_losses(best, kept)}"
        costs.append(ChoiceCost(name, value, step, free, kept, "costs nothing" if step <= free else reason))
    return tuple(sorted(costs, key=lambda one: -(one.cost if one.cost is not None else float("inf"))))
