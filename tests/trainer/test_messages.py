"""Messages between stages are in memory while they are under way or in use, and no longer."""

from pathlib import Path

import pytest

from meshwright.layout.schedules import actions

from .plans import TINY, cut, plan

pytest.importorskip("torch", reason="training needs meshwright[train]")

from meshwright.trainer.parallel.messages import proofs

from .test_traced import real_ranks


def test_an_activation_proves_that_earlier_gradients_have_arrived() -> None:
    """1F1B on 2 ranks: rank 0 runs F0 F1 B0 F2 B1 F3 ..., so F2 proves the arrival of gradient 0, F3 that of 1."""
    found = proofs(actions("1f1b", (0, 1), 5))
    assert {key: list(value) for key, value in found.items() if key[0] == 1} == {(1, 2): [0], (1, 3): [1], (1, 4): [2]}


def test_no_activation_follows_the_backwards_of_gpipe() -> None:
    assert proofs(actions("gpipe", (0, 1), 4)) == {}


@pytest.mark.slow
def test_what_a_rank_holds_does_not_grow_with_the_micro_batches(tmp_path: Path) -> None:
    peaks = []
    for m in (4, 16):
        given = plan(stages=cut(TINY, 5, 5), pp=2, micro_batch=1, global_batch=m, seq_len=32)
        (tmp_path / str(m)).mkdir()
        peaks.append([rank["backward_peak"] for rank in real_ranks(given, tmp_path / str(m))])
    message, samples = 32 * TINY.hidden * 4, (32 + 33) * 8
    for few, many in zip(*peaks, strict=True):
        assert many - few - 12 * samples <= message  # at most one more is under way; it were 12 or 24 if each were kept
