"""Reading ahead: in order, bounded, and with errors where they belong."""

import threading
import time

import pytest

from meshwright.trainer.data_prefetch import reading_ahead


def test_everything_comes_in_order_and_the_wait_is_measured() -> None:
    def make(step: int) -> int:
        time.sleep(0.05 if step == 3 else 0)
        return step * step

    with reading_ahead(make, range(3, 40)) as ahead:
        value, waited = ahead.take(3)
        assert (value, waited >= 0.03) == (9, True)
        assert [ahead.take(step)[0] for step in range(4, 40)] == [step * step for step in range(4, 40)]
        with pytest.raises(LookupError, match="step 40 is not among"):
            ahead.take(40)


def test_it_is_never_further_ahead_than_asked() -> None:
    made: list[int] = []
    reached = threading.Event()

    def make(step: int) -> int:
        made.append(step)
        if step == 2:
            reached.set()
        return step

    with reading_ahead(make, range(100), depth=2) as ahead:
        assert reached.wait(5)
        time.sleep(0.05)
        assert len(made) == 3  # two wait, one is in the hand
        ahead.take(0)
        with pytest.raises(LookupError, match="step 7 was asked for when 1 was next"):
            ahead.take(7)
    assert not [thread for thread in threading.enumerate() if thread.name == "read ahead"]


def test_an_error_comes_at_its_own_step() -> None:
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("broken")
        return step

    with reading_ahead(make, range(5)) as ahead:
        assert [ahead.take(step)[0] for step in range(2)] == [0, 1]
        with pytest.raises(ValueError, match="broken"):
            ahead.take(2)
