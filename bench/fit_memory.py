"""Learn from measured rows how far predicted memory is off and what the allocator holds beyond it.

    python bench/fit_memory.py [ROWS.csv] [--write]

Prints the few constants of `predictor/memory_spread.toml`, and with --write stores them there:

    error    standard deviation of measured over predicted bytes, such that nine of ten rows lie within 1.645 of it.
             Every source counts alike, however many rows it prints; rows of trust A and B.
    reserve  six equally likely shares that PyTorch's allocator holds beyond what is allocated: quantiles of what rows
             that print reserved bytes show over predicted allocated bytes, within the 0 to 9 % that runs with both
             figures have shown. Where GB may mean 10^9 or 2^30 bytes both readings count alike.

Nothing else about memory is fitted here: bytes are counted, and the habits of software are facts with their sources in
`predictor/stacks.toml`.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from meshwright.files.rows import read_rows
from meshwright.planner.configurations import Skipped, configuration_of
from meshwright.planner.rows_memory import MemoryFigure, memory_figure, predicted_gib
from meshwright.predictor.memory import rank_memory

DATA = Path(__file__).parents[1] / "data" / "measurements" / "measurements.csv"
TARGET = Path(__file__).parents[1] / "src" / "meshwright" / "predictor" / "memory_spread.toml"
_MOST_RESERVED = 0.09
_NINE_OF_TEN = 1.645
_SHARES = 6


def main() -> None:
    """Fit, print, and write when asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="?", type=Path, default=DATA)
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    errors: dict[str, list[float]] = defaultdict(list)
    over = []
    for row in read_rows(asked.rows):
        figure = memory_figure(row)
        if figure is None or row.trust not in ("A", "B"):
            continue
        found = configuration_of(row)
        if isinstance(found, Skipped):
            continue
        stages = rank_memory(found.plan.setup, found.plan.layout, found.plan.batch)
        errors[row.source].append(figure.error(predicted_gib(figure, stages)))
        if figure.kind == "reserved":
            plain = MemoryFigure("allocated", figure.gib, figure.low_gib, figure.rank)
            allocated = predicted_gib(plain, stages)
            over += [figure.gib / allocated - 1, figure.low_gib / allocated - 1]
    weights = np.concatenate([np.full(len(found), 1 / len(found)) for found in errors.values()])
    sizes = np.abs(np.concatenate([np.asarray(found) for found in errors.values()]))
    order = np.argsort(sizes)
    reached = np.cumsum(weights[order]) / weights.sum()
    error = float(sizes[order][np.searchsorted(reached, 0.9)]) / _NINE_OF_TEN
    at = (np.arange(_SHARES) + 0.5) / _SHARES
    shares = np.clip(np.quantile(over, at), 0.0, _MOST_RESERVED)
    rows, sources = len(sizes), len(errors)
    text = (
        "# Written by bench/fit_memory.py; see there.\n\n"
        f"error = {error:.3f}\n"
        f"reserve = [{', '.join(f'{share:.3f}' for share in shares)}]\n"
        f'source = "bench/fit_memory.py on data/measurements: {rows} rows of {sources} sources with a peak, '
        f'{len(over) // 2} of them with reserved bytes"\n'
    )
    print(text)
    if asked.write:
        TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
