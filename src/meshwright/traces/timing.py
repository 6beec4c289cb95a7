"""Timing tables: seconds of each phase by step and rank, with the work of the samples where it is told."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.traces.opening import shown_start
from meshwright.traces.tables import read_csv

PHASES = ("forward", "backward", "comm", "data", "optimizer", "step")


@dataclass(frozen=True)
class Timing:
    """`seconds` by phase, [steps, ranks], NaN where a rank did not report; `work` likewise by "tokens" and
    "sum_len_sq" where the table has them."""

    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    seconds: dict[str, NDArray[np.float64]]
    work: dict[str, NDArray[np.float64]]
    notes: tuple[str, ...]

    @property
    def compute(self) -> NDArray[np.float64] | None:
        """[steps, ranks] forward and backward together; None without either."""
        parts = [self.seconds[phase] for phase in ("forward", "backward") if phase in self.seconds]
        return sum(parts[1:], parts[0]) if parts else None


def read_timing(path: Path) -> Timing:
    """Read a table step,rank,phase,ms[,tokens,sum_len_sq]. Several lines of one phase (micro-batches) add up.

    Raises InputError for unknown phases, cells that are no numbers, and tables too sparse to lay out by step and rank.
    """
    table = read_csv(
        path, ("step", "rank", "ms"), ("tokens", "sum_len_sq"), ("phase",), filled=("step", "rank", "ms")
    )  # fmt: skip
    step, rank = table.whole("step"), table.whole("rank")
    phases = [phase.lower() for phase in table.texts.get("phase", ())] or ["step"] * len(table)
    unknown = sorted(set(phases) - set(PHASES))
    if unknown:
        legal = ", ".join(PHASES)
        raise InputError(
            tuple(Complaint("phase", shown_start(name, 40), "unknown phase", legal, str(path)) for name in unknown[:5])
        )
    steps, row = np.unique(step, return_inverse=True)
    ranks, column = np.unique(rank, return_inverse=True)
    if len(steps) * len(ranks) > 20 * len(table) + 1000:
        raise bad_input("most steps lack most ranks: no table of steps by ranks", file=str(path))
    seconds, seen = {}, np.array(phases)
    for phase in dict.fromkeys(phases):
        mine = seen == phase
        grid = np.zeros((len(steps), len(ranks)))
        np.add.at(grid, (row[mine], column[mine]), table.numbers["ms"][mine] / 1e3)
        there = np.zeros(grid.shape, bool)
        there[row[mine], column[mine]] = True
        seconds[phase] = np.where(there, grid, np.nan)
    work: dict[str, NDArray[np.float64]] = {}
    for name in ("tokens", "sum_len_sq"):
        if name in table.numbers and np.isfinite(table.numbers[name]).any():
            values = table.numbers[name]
            known = np.isfinite(values)
            # The work of a step is told on each of its phases, or on one: the largest is the step's.
            filled = np.full((len(steps), len(ranks)), -np.inf)
            np.maximum.at(filled, (row[known], column[known]), values[known])
            work[name] = np.where(np.isfinite(filled), filled, np.nan)
    notes = list(table.notes)
    if lost := int(sum(np.isnan(grid).sum() for grid in seconds.values())):
        notes.append(f"{path.name}: {lost} times of a step, rank and phase are missing: those steps are left out")
    return Timing(tuple(steps.tolist()), tuple(ranks.tolist()), seconds, work, tuple(notes))
