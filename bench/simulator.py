"""How fast the event simulator is, and how far its steps are from the closed forms.

Run: python bench/simulator.py. Each line: schedule, ranks, chunks, micro-batches, actions, milliseconds (best of 5),
the simulated idle share over the closed form's (1 is exact), and the time over the 100 ms that a plan may take.
"""

import time

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import actions, default_placement
from meshwright.predictor.pipeline import simulate

CASES: tuple[tuple[Schedule, int, int, int], ...] = (
    ("1f1b", 8, 1, 32), ("gpipe", 8, 1, 32), ("interleaved", 8, 4, 64), ("1f1b", 16, 1, 256),
    ("interleaved", 16, 5, 256),
)  # fmt: skip
ALLOWED_S = 0.1


def main() -> None:
    for schedule, ranks, chunks, micro_batches in CASES:
        placement = default_placement(schedule, ranks, chunks)
        orders = actions(schedule, placement, micro_batches)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            step = simulate(orders, placement, [1.0] * len(placement), [2.0] * len(placement))
            times.append(time.perf_counter() - begin)
        closed = (ranks - 1) / (chunks * micro_batches + ranks - 1)
        print(
            f"{schedule:12} p {ranks:2} v {chunks} m {micro_batches:3} {sum(map(len, orders)):6} actions "
            f"{min(times) * 1e3:6.2f} ms  idle/closed form {step.bubble_fraction / closed:.6f}  "
            f"time/allowed {min(times) / ALLOWED_S:.3f}"
        )


if __name__ == "__main__":
    main()
