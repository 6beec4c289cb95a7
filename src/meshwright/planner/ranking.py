"""Is the better layout known? Measured layouts of one job, ranked by their predictions.

A group is what shares source, model, device, device count, global batch, sequence length, precision and task, with at
least four distinct layouts; a layout measured several times counts once, by its median. Regret is the measured time of
the layout predicted fastest over that of the fastest measured, less 1; a choice within 2 % of the fastest counts as it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from meshwright.planner.validate import Judged
from meshwright.planner.validate_measured import MeasuredStep

LEAST_LAYOUTS = 4
AS_GOOD = 0.02  # repeats of one configuration differ by as much

_JOB = (
    "source", "model_name", "layers", "hidden", "ffn_hidden", "heads", "vocab", "experts", "gpu", "gpus",
    "global_batch", "seq_len", "precision", "task",
)  # fmt: skip
_NEEDED = ("gpu", "gpus", "global_batch", "seq_len")
_LAYOUT = (
    "dp", "tp", "sp", "pp", "vpp", "cp", "ep", "zero_stage", "schedule", "micro_batch", "recompute", "offload",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """One layout: seconds a step, and the row it is shown by."""

    measured_s: float
    predicted_s: float
    shown: Judged


@dataclass(frozen=True, slots=True)
class Group:
    """The measured layouts of one job. `tau` is Kendall's tau-b between measured and predicted step times (0 where all
    predictions are equal); `first` the choice predicted fastest, `best` the fastest measured."""

    choices: tuple[Choice, ...]
    tau: float
    regret: float
    first: Choice
    best: Choice

    @property
    def extrapolated(self) -> bool:
        """Do its times follow from fewer timings?"""
        return self.first.shown.extrapolated

    @property
    def one_node(self) -> bool:
        """Do all its devices lie in one node?"""
        return self.first.shown.plan.setup.proposal.cluster.one_domain


@dataclass(frozen=True, slots=True)
class Ranking:
    """Over groups: mean tau, mean and worst regret, and the share of groups whose first choice is as good as the best.
    All None without a group."""

    groups: int
    layouts: int
    tau: float | None
    mean_regret: float | None
    worst_regret: float | None
    best_found: float | None


def groups(judged: Iterable[Judged]) -> tuple[Group, ...]:
    """The groups of a table, the largest regret first."""
    jobs: dict[tuple[object, ...], dict[tuple[object, ...], list[Judged]]] = {}
    for one in judged:
        if isinstance(one.step, str) or any(getattr(one.row, name) is None for name in _NEEDED):
            continue
        job, layout = (tuple(getattr(one.row, name) for name in names) for names in (_JOB, _LAYOUT))
        jobs.setdefault(job, {}).setdefault(layout, []).append(one)
    found = [_group([_choice(rows) for rows in job.values()]) for job in jobs.values() if len(job) >= LEAST_LAYOUTS]
    return tuple(sorted(found, key=lambda group: -group.regret))


def _choice(rows: Sequence[Judged]) -> Choice:
    measured = [one.step.seconds for one in rows if isinstance(one.step, MeasuredStep)]
    return Choice(median(measured), median(one.prediction.step_time_s for one in rows), rows[-1])


def _group(choices: Sequence[Choice]) -> Group:
    # of layouts that are predicted equally fast the slowest counts: nothing tells them apart
    first = min(choices, key=lambda choice: (choice.predicted_s, -choice.measured_s))
    best = min(choices, key=lambda choice: choice.measured_s)
    as_good = first.measured_s <= best.measured_s * (1 + AS_GOOD)
    regret = 0.0 if as_good else first.measured_s / best.measured_s - 1
    tau = kendall_tau([c.measured_s for c in choices], [c.predicted_s for c in choices])
    return Group(tuple(choices), tau, regret, first, best)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b of two orders of the same things: pairs in the same order less pairs in opposite order, over the
    geometric mean of the pairs that each tells apart; 0 where one tells nothing apart."""
    upper = np.triu_indices(len(first), 1)
    signs = [np.sign(np.subtract.outer(values, values))[upper] for values in (np.array(first), np.array(second))]
    told = float(np.abs(signs[0]).sum() * np.abs(signs[1]).sum())
    return float((signs[0] * signs[1]).sum()) / told**0.5 if told else 0.0


def ranking(found: Sequence[Group]) -> Ranking:
    """What holds over all these groups."""
    if not found:
        return Ranking(0, 0, None, None, None, None)
    regrets = [group.regret for group in found]
    return Ranking(
        len(found), sum(len(group.choices) for group in found), float(np.mean([group.tau for group in found])),
        float(np.mean(regrets)), max(regrets), float(np.mean([not regret for regret in regrets])),
    )  # fmt: skip


def ranking_by_place(found: Sequence[Group]) -> dict[str, Ranking]:
    """One node or several, and apart from these the groups whose times are extrapolated."""
    parts: dict[str, list[Group]] = {"one node": [], "several nodes": [], "extrapolated": []}
    for group in found:
        place = "extrapolated" if group.extrapolated else "one node" if group.one_node else "several nodes"
        parts[place].append(group)
    return {place: ranking(part) for place, part in parts.items() if part}
