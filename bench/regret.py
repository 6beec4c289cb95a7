"""What it costs to follow our first choice: the measured time of the plan predicted fastest over the best measured.

    python bench/regret.py [ROWS.csv ...] [--each] [--held-out ORIGIN]

Prints the mean and worst regret and Kendall's tau (see `planner/ranking.py`) of the single-node sweep and of the
measured rows, complete ones of trust A and B. `--each` prints every group that lost something. `--held-out
github:VIA-Research/vTrain` first refits the constants without the rows of that repository or paper, and forgets what
they say of their software.
"""

import argparse
from pathlib import Path

import numpy as np
from fit_constants import free_constants, held_out_point, jacobian, rows_to_fit, set_to
from time_rows import DATA

from meshwright.files.rows import read_rows
from meshwright.planner.configurations import Skipped
from meshwright.planner.ranking import Choice, groups, ranking_by_place
from meshwright.planner.validate import judge


def without(origin: str) -> None:
    """Set the constants to those of a fit that has not seen the rows of one origin."""
    rows = rows_to_fit()
    free = free_constants(rows)
    at = np.array([one.coordinate(one.read()) for one in free])
    kept = np.array([one.origin != origin for one in rows])
    set_to(free, held_out_point(rows, free, at, jacobian(rows, free, at), kept))


def _text(choice: Choice) -> str:
    return f"{choice.shown.layout_text}: {choice.measured_s:.3f} s, predicted {choice.predicted_s:.3f} s"


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", type=Path)
    options.add_argument("--each", action="store_true")
    options.add_argument("--held-out", default="")
    asked = options.parse_args()
    if asked.held_out:
        without(asked.held_out)
    for path in asked.rows or (DATA / "single_node_sweep.csv", DATA / "measurements.csv"):
        rows = (row for row in read_rows(path) if row.complete and row.trust in ("A", "B"))
        found = groups(one for one in map(judge, rows) if not isinstance(one, Skipped))
        for group in found if asked.each else ():
            if group.regret:
                row = group.first.shown.row
                print(f"{group.regret:6.1%} of {len(group.choices)} layouts: {row.source[:60]} {row.model_name}")
                print(f"    chosen {_text(group.first)}\n    best   {_text(group.best)}")
        for place, total in ranking_by_place(found).items():
            if total.groups:
                print(
                    f"{path.name}, {place}: {total.groups} groups of {total.layouts} layouts, regret mean "
                    f"{total.mean_regret:.1%}, worst {total.worst_regret:.1%}, tau {total.tau:.2f}, best found "
                    f"{total.best_found:.0%}"
                )


if __name__ == "__main__":
    main()
