"""Rows of a parameter over ranks, and the messages that carry them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from meshwright.trainer.parallel.rows import own_rows, pack, row_elements, unpack  # noqa: E402

SHAPES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=5)


@given(st.integers(1, 12), st.integers(1, 6))
def test_rows_are_cut_as_torch_cuts_them(rows: int, size: int) -> None:
    whole = torch.arange(rows * 2.0).view(rows, 2)
    chunks = whole.chunk(size)
    for rank in range(size):
        expected = chunks[rank] if rank < len(chunks) else whole[:0]
        assert torch.equal(own_rows(whole, size, rank), expected)
    own_rows(whole, size, 0).zero_()
    assert whole[0].sum() == 0  # a view


@given(SHAPES, st.integers(1, 6))
def test_what_is_packed_comes_back_from_the_ranks_own_rows(shapes: list, size: int) -> None:
    wholes = [torch.randn(shape) for shape in shapes]
    widths = [row_elements(whole, size) for whole in wholes]
    packed = pack(wholes, widths, size, wholes[0])
    assert packed.shape == (size, sum(widths))
    alone = [pack([own_rows(w, size, rank) for w in wholes], widths, 1, wholes[0])[0] for rank in range(size)]
    assert torch.equal(torch.stack(alone), packed)  # what one rank sends is its line of the whole
    back = [torch.full_like(whole, torch.nan) for whole in wholes]
    unpack(packed, back, widths)
    assert all(torch.equal(a, b) for a, b in zip(wholes, back, strict=True))


def test_a_missing_gradient_counts_as_zero() -> None:
    packed = pack([None, torch.ones(3, 1)], [4, 2], 2, torch.zeros(()))
    assert packed.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0]]
