"""What people write and read: sizes, counts, durations."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB, MIB, bytes_text, count_text, gib, parse_bytes, parse_count, seconds_text


@pytest.mark.parametrize(
    ("text", "value"),
    [("786.00MiB", 786 * MIB), ("40GB", 40 * 10**9), ("40 GiB", 40 * GIB), ("1024", 1024), ("1e3 b", 1000)],
)
def test_bytes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(("text", "value"), [("1.2B", 1_200_000_000), ("350M", 350_000_000), ("7000", 7000)])
def test_counts(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("text", ["", "B", "-5B", "1.2.3", "12 parsecs", "nan", "inf", "1,2B", "0x10"])
def test_other_texts_are_refused_with_the_field(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_count(text, "model.params")
    assert caught.value.complaints[0].field == "model.params"
    with pytest.raises(InputError):
        parse_bytes(text)


def test_printing_always_carries_the_unit() -> None:
    assert gib(1.5 * GIB) == "1.50 GiB"
    assert gib(200.4 * GIB) == "200 GiB"
    assert bytes_text(786 * MIB) == "786.00 MiB"
    assert bytes_text(12) == "12 B"
    assert count_text(1_210_000_000) == "1.21 B"
    assert [seconds_text(s) for s in (0.00083, 0.0124, 3.21, 600, 7500, math.inf)] == [
        "830 µs", "12.4 ms", "3.21 s", "10.0 min", "2 h 05 min", "unknown",
    ]  # fmt: skip


@given(st.integers(0, 2**60))
def test_any_number_of_bytes_survives_the_round_trip_within_its_digits(size: int) -> None:
    assert parse_bytes(bytes_text(size)) == pytest.approx(size, rel=0.006, abs=0.5)


@given(st.floats(0, 1e9))
def test_durations_never_show_sixty_minutes(seconds: float) -> None:
    assert "60 min" not in seconds_text(seconds)
