"""How well step times are predicted: every measured row, by source.

    python bench/time_accuracy.py [ROWS.csv] [--rows] [--only ID]

Prints for each source and device how many configurations (the latest of a re-measured one), the median error and bias
(predicted over measured, less 1) and the worst row; and over all by trust. `--rows` prints every row with what its
predicted step is made of.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
from time_rows import DATA, Timed, latest, load

from meshwright.layout.degrees import describe
from meshwright.predictor.step import predict


def _shown(one: Timed, error: float, terms: dict[str, float], step_s: float) -> str:
    made = " ".join(f"{name} {seconds / step_s:.0%}" for name, seconds in terms.items() if seconds > 0.015 * step_s)
    return (
        f"{one.row.name:16} {one.row.model_name[:22]:22} {one.row.gpu[:8]:8} x{one.plan.layout.world} "
        f"{one.row.precision} {describe(one.plan.layout)} mb {one.plan.batch.micro_batch} x "
        f"{one.plan.batch.micro_batches} {one.seconds:.3f} -> {step_s:.3f} {error:+.0%} [{made}] {one.plan.setup.stack}"
    )


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="?", type=Path, default=DATA / "measurements.csv")
    options.add_argument("--rows", dest="each", action="store_true")
    options.add_argument("--only", default="", help="rows whose id begins with this")
    asked = options.parse_args()
    rows, skipped = load(asked.rows)
    by_source: dict[str, list[tuple[float, str]]] = defaultdict(list)
    by_trust: dict[str, list[float]] = defaultdict(list)
    for one in latest(rows):
        if one.ranked_only or not one.row.name.startswith(asked.only):
            continue
        found = predict(one.plan)
        error = found.step_time_s / one.seconds - 1
        device = one.plan.setup.proposal.cluster.device.name
        by_source[f"{one.source[:80]} {device[:9]}"].append((error, one.row.name))
        by_trust[one.row.trust].append(error)
        if asked.each:
            print(_shown(one, error, dict(found.terms), found.step_time_s))
    for source, errors in sorted(by_source.items(), key=lambda item: -median(abs(e) for e, _ in item[1])):
        worst = max(errors, key=lambda error: abs(error[0]))
        middle, bias = median(abs(e) for e, _ in errors), median(e for e, _ in errors)
        print(f"{source:90} {len(errors):3} {middle:6.1%} {bias:+7.1%}  {worst[1]} {worst[0]:+.0%}")
    for trust, sizes in (*sorted(by_trust.items()), ("A and B", by_trust["A"] + by_trust["B"])):
        middle, high = np.median(np.abs(sizes)), np.percentile(np.abs(sizes), 90)
        print(f"trust {trust}: {len(sizes)} configurations, median {middle:.1%}, p90 {high:.1%}, ", end="")
        print(f"bias {np.median(sizes):+.1%}")
    print(f"{len(rows)} rows, skipped {len(skipped)}: {skipped[:5]}")


if __name__ == "__main__":
    main()
