"""Sizes as PyTorch prints them, as people type them, and as whole error lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.planner.oom_request import block_bytes, parse_request

MIB, GIB = 2**20, 2**30
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.64 GiB memory in use. Of the "
    "allocated memory 70.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.38 GiB (GPU 0; 15.78 GiB total capacity; 11.40 GiB already "
    "allocated; 1.25 GiB free; 13.02 GiB reserved in total by PyTorch)"
)


def printed(size: int) -> str:
    """As PyTorch's allocator prints a size (c10 format_size)."""
    if size <= 1024:
        return f"{size} bytes"
    unit, name = next(
        (u, n) for u, n, most in ((1024, "KiB", MIB), (MIB, "MiB", GIB), (GIB, "GiB", 2**70)) if size <= most
    )
    return f"{size / unit:.2f} {name}"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("786.00MiB", 786 * MIB), ("786MiB", 786 * MIB), ("2.38 GiB", round(2.38 * GIB)), ("824180736", 824_180_736),
        ("824,180,736 bytes", 824_180_736), ("786 MB", 786_000_000), (NEW, 786 * MIB), (OLD, round(2.38 * GIB)),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_request(text).size == size


def test_a_whole_line_tells_the_device_its_capacity_and_what_was_free() -> None:
    new, old = parse_request(NEW), parse_request(OLD)
    assert (new.gpu, new.free, new.unused) == (3, 512 * MIB, 1.5 * GIB)
    assert new.capacity == round(79.15 * GIB)
    assert (old.gpu, old.free, old.unused) == (0, 1.25 * GIB, None)
    assert old.capacity == round(15.78 * GIB)


def test_mb_is_read_both_ways_and_mib_only_as_it_is() -> None:
    both = parse_request("786 MB").readings
    assert [(one.size, one.words) for one in both] == [(786_000_000, "MB"), (786 * MIB, "MiB")]
    assert [one.words for one in parse_request("786 MiB").readings] == ["MiB"]


@given(st.integers(1, 2**45))
def test_what_is_printed_holds_the_size_that_was_printed(size: int) -> None:
    (reading,) = parse_request(printed(size)).readings
    assert reading.holds(size)


@given(st.integers(2 * MIB, 2**40))
def test_two_decimals_are_taken_at_their_word(size: int) -> None:
    (reading,) = parse_request(printed(size)).readings
    unit = MIB if size <= GIB else GIB
    assert not reading.holds(size + round(0.011 * unit))
    assert not reading.holds(size - round(0.011 * unit))


@pytest.mark.parametrize(
    ("size", "block"),
    [
        (1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB), (786 * MIB - 5, 786 * MIB), (784 * MIB, 784 * MIB),
    ],
)  # fmt: skip
def test_blocks_of_the_cuda_allocator(size: int, block: int) -> None:
    assert block_bytes(size) == block


@given(st.integers(1, 2**45))
def test_a_block_holds_what_was_asked_for_and_wastes_less_than_a_step(size: int) -> None:
    assert size <= block_bytes(size) <= max(20 * MIB, size + 2 * MIB)


@pytest.mark.parametrize("text", ["", "abc", "-5MiB", "nan", "0", "0.0 GiB", "1e9MiB", "786 parsecs", "9" * 40 + "GiB"])
def test_anything_else_is_refused_in_one_complaint(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_request(text)
    (complaint,) = refused.value.complaints
    assert complaint.field == "--oom"
