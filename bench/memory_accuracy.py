"""How well memory is predicted: every measured row with a peak, by source.

    python bench/memory_accuracy.py [ROWS.csv] [--rows] [--parts]

Prints for each source how many rows, the median error and bias (predicted over measured, less 1) and the worst row; and
over all rows by trust. "GB" that may be 10^9 or 2^30 bytes counts as the nearer of both. `--rows` prints every row,
`--parts` what its fullest rank is predicted to hold.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import median

from meshwright.basics.quantities import GIB
from meshwright.files.prediction import IMPOSSIBLE, StageMemory
from meshwright.files.rows import read_rows
from meshwright.planner.configurations import Configuration, Skipped, configuration_of
from meshwright.planner.rows_memory import counted, memory_figure, predicted_gib, ran_out
from meshwright.predictor.memory import rank_memory

DATA = Path(__file__).parents[1] / "data" / "measurements" / "measurements.csv"


def predicted(found: Configuration) -> tuple[StageMemory, ...]:
    """The memory of a row's plan."""
    return rank_memory(found.plan.setup, found.plan.layout, found.plan.batch)


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="?", type=Path, default=DATA)
    options.add_argument("--rows", dest="each", action="store_true")
    options.add_argument("--parts", action="store_true")
    options.add_argument("--only", default="", help="rows whose id begins with this")
    asked = options.parse_args()
    by_source: dict[str, list[tuple[float, str, str, str]]] = defaultdict(list)
    by_trust: dict[str, list[float]] = defaultdict(list)
    as_printed: dict[str, list[float]] = defaultdict(list)
    impossible, out_of_memory, skipped = [], [], []
    for row in read_rows(asked.rows):
        if not row.name.startswith(asked.only):
            continue
        figure = memory_figure(row)
        found = configuration_of(row)
        if isinstance(found, Skipped):
            skipped += [row.name] if figure else []
            continue
        stages = predicted(found)
        p_oom = max(stage.p_oom or 0.0 for stage in stages)
        if ran_out(row):
            out_of_memory.append((row.name, p_oom))
            continue
        if p_oom >= IMPOSSIBLE:
            impossible.append((row.name, row.trust, p_oom, found.plan.layout.recompute))
        if figure is None:
            continue
        size = predicted_gib(figure, stages)
        error = figure.error(size)
        by_source[f"{row.name.rsplit('-', 1)[0]}: {row.source[:60]}"].append((error, row.name, row.trust, figure.kind))
        by_trust[row.trust].append(error)
        as_printed[row.trust].append(size / figure.gib - 1)
        if asked.each:
            layout = found.plan.layout
            print(
                f"{row.name:18} {row.trust} {figure.kind:9} {figure.gib:8.2f} {size:8.2f} {error:+7.1%} p {p_oom:.2f} "
                f"dp {layout.dp} tp {layout.tp} pp {layout.pp} z {layout.zero} mb {found.plan.batch.micro_batch} "
                f"{layout.schedule} {layout.recompute} {found.plan.setup.stack}"
            )
        if asked.parts:
            worst = max(stages, key=lambda stage: counted(stage, figure.kind))
            parts = {kind: round(size / GIB, 2) for kind, size in worst.parts.items() if size > 0.005 * GIB}
            print(f"    rank {worst.pipeline_rank} of {len(stages)}, {worst.in_flight} alive: {parts}")
    print(f"{'source':78} {'n':>3} {'median':>7} {'bias':>7}  worst")
    for source, errors in sorted(by_source.items(), key=lambda item: -median(abs(e[0]) for e in item[1])):
        worst = max(errors, key=lambda error: abs(error[0]))
        middle, bias = median(abs(error[0]) for error in errors), median(error[0] for error in errors)
        print(f"{source:78} {len(errors):3} {middle:7.1%} {bias:+7.1%}  {worst[1]} {worst[0]:+.1%}")
    for trust, sizes in sorted(by_trust.items()):
        middle, plain = median(map(abs, sizes)), median(map(abs, as_printed[trust]))
        bias = median(sizes)
        print(f"trust {trust}: {len(sizes)} rows, median error {middle:.1%}, bias {bias:+.1%}; GB as GiB: {plain:.1%}")
    print(f"ran, yet called impossible: {len(impossible)} {impossible}")
    print(f"ran out of memory, and the probability predicted: {out_of_memory}")
    if skipped:
        print(f"skipped: {skipped}")


if __name__ == "__main__":
    main()
