"""Which micro-batches stand for a whole step: those alive at its fullest moments, with one that is done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.layout.schedules import actions, default_placement, peak_live
from meshwright.trainer.traced_moments import LONGEST, Effect, fullest, restricted

ONE = {
    (stage, kind): Effect(size, 0) for stage in range(8) for kind, size in (("F", 1), ("B", -1), ("I", 0), ("W", -1))
}


def test_one_forward_one_backward_keeps_as_many_as_there_are_ranks_behind() -> None:
    orders = actions("1f1b", (0, 1, 2, 3), 12)
    found = [fullest(order, ONE) for order in orders]
    assert [each.in_flight for each in found] == [4, 3, 2, 1]
    # The first micro-batch is done when 4 are alive again for the first time.
    assert found[0].micro_batches == (0, 1, 2, 3, 4)
    assert not any(each.left_out for each in found)


def test_beyond_the_longest_what_is_not_traced_is_named() -> None:
    found = fullest(actions("gpipe", (0, 1), 40)[0], ONE)
    assert found.in_flight == 40
    assert found.micro_batches == tuple(range(LONGEST))
    assert found.left_out == (0,) * (40 - LONGEST)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zbv", "dualpipev"])
@given(pp=st.integers(2, 4), more=st.integers(0, 2))
def test_the_short_step_is_as_full_as_the_whole_one(schedule: str, pp: int, more: int) -> None:
    vpp = {"gpipe": 1, "1f1b": 1, "zb-h1": 1}.get(schedule, 2)
    m = 2 * pp + pp * more
    orders = actions(schedule, default_placement(schedule, pp, vpp), m)  # type: ignore[arg-type]
    for rank, order in enumerate(orders):
        found = fullest(order, ONE)
        short = restricted(orders, found.micro_batches)
        assert peak_live(short)[rank] + len(found.left_out) == peak_live(orders)[rank] == found.in_flight
        numbers = {action.micro_batch for action in short[rank]}
        assert numbers == set(range(len(found.micro_batches)))
