"""The measured bubble against pipelines whose bubble is known."""

from pathlib import Path

import pytest

from meshwright.timeline.columns import Action, Kind, Timeline, build
from meshwright.timeline.storage import save
from meshwright.trainer.bubble import bubble_fraction, recorded_bubble

F, B = Action.FORWARD, Action.BACKWARD
# (rank, start, end, kind, action, sequence): two stages, two micro-batches, F and B of one unit each.
GPIPE = [
    (0, 0, 1, Kind.COMPUTE, F, -1), (0, 1, 2, Kind.COMPUTE, F, -1),
    (0, 2, 4, Kind.COMMUNICATION, B, -1), (0, 4, 5, Kind.COMPUTE, B, -1), (0, 5, 6, Kind.COMPUTE, B, -1),
    (1, 0, 1, Kind.COMMUNICATION, F, -1), (1, 1, 2, Kind.COMPUTE, F, -1), (1, 2, 3, Kind.COMPUTE, F, -1),
    (1, 3, 4, Kind.COMPUTE, B, -1), (1, 4, 5, Kind.COMPUTE, B, -1),
]  # fmt: skip
END = [(rank, 6, 9, kind, action, 0) for rank in (0, 1)
       for kind, action in ((Kind.COMMUNICATION, Action.NONE), (Kind.COMPUTE, Action.OPTIMIZER))]  # fmt: skip


def timeline(rows: list[tuple[int, ...]], ranks: tuple[int, ...] = (0, 1), step: int = 4) -> Timeline:
    rank, start, end, kind, action, sequence = zip(*rows, strict=True)
    stage = [-1 if a in (Action.NONE, Action.OPTIMIZER) else r for r, a in zip(rank, action, strict=True)]
    return build(
        {"rank": rank, "start": start, "end": end, "kind": kind, "action": action, "sequence": sequence,
         "stage": stage, "step": [step] * len(rank), "name": [0] * len(rank)},
        names=["span"], recorded=ranks, mode="dilated", time_scale=4.0,
    )  # fmt: skip


def test_gpipe_of_two_stages_and_two_micro_batches_idles_a_third() -> None:
    # (p - 1) / (m + p - 1) of Huang et al. 2019; waits, the exchange and the optimizer do not count.
    assert bubble_fraction(timeline(GPIPE)) == pytest.approx(1 / 3)
    assert bubble_fraction(timeline(GPIPE + END)) == pytest.approx(1 / 3)


def test_a_collective_inside_an_action_is_not_idle() -> None:
    split = [row for row in GPIPE if row[:2] != (1, 3)] + [
        (1, 3, 3, Kind.COMPUTE, B, -1), (1, 3, 4, Kind.COMMUNICATION, B, 7)
    ]  # fmt: skip
    assert bubble_fraction(timeline(split)) == pytest.approx(1 / 3)


def test_nothing_recorded_is_not_zero(tmp_path: Path) -> None:
    assert bubble_fraction(timeline(END)) is None
    assert recorded_bubble(tmp_path / "spans", "dilated") is None
    for rank in (0, 1):
        save(timeline([row for row in GPIPE if row[0] == rank], (rank,)), tmp_path / f"rank{rank:05}.npz")
    assert recorded_bubble(tmp_path, "dilated") == pytest.approx(1 / 3)
    assert recorded_bubble(tmp_path, "measured") is None
