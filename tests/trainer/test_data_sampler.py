"""The order of samples: a function of seed and epoch, the same in every layout."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.files.setup import Pack
from meshwright.trainer.data import TokenFile
from meshwright.trainer.data_sampler import Reading, Sampler, check_readable, samples, shuffled, window_count

from .plans import plan


def numbered(count: int) -> TokenFile:
    """Every token is its own position."""
    return TokenFile(np.arange(count, dtype=np.uint32), count)


@given(count=st.integers(1, 400), seed=st.integers(0, 2**63), epoch=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_the_order_is_a_permutation(count: int, seed: int, epoch: int) -> None:
    assert sorted(shuffled(index, count, (seed, epoch)) for index in range(count)) == list(range(count))


@given(windows=st.integers(4, 60), extra=st.integers(0, 6), batch=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_every_window_comes_once_an_epoch(windows: int, extra: int, batch: int, seed: int) -> None:
    seq_len = 7
    file = numbered(windows * seq_len + 1 + extra)
    assert window_count(file, seq_len) == windows
    steps = windows  # `batch` whole epochs
    rows = np.concatenate([samples(file, step, batch, seq_len, seed) for step in range(steps)])
    assert rows.shape == (windows * batch, seq_len + 1)
    assert rows.dtype == np.int64
    np.testing.assert_array_equal(rows - rows[:, :1], np.broadcast_to(np.arange(seq_len + 1), rows.shape))
    starts = rows[:, 0].reshape(batch, windows)
    for epoch in starts:
        assert sorted(epoch.tolist()) == [window * seq_len for window in range(windows)]
    targets = np.sort(rows[:windows, 1:].ravel())
    np.testing.assert_array_equal(targets, np.arange(1, windows * seq_len + 1))  # each token a target once


def test_epochs_and_seeds_differ_and_look_shuffled() -> None:
    count = 1000
    orders = {key: [shuffled(i, count, key) for i in range(count)] for key in ((1, 0), (1, 1), (2, 0))}
    for order in orders.values():
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 0.1  # 3 sigma of a random order is 0.095
    assert np.mean(np.array(orders[1, 0]) == np.array(orders[1, 1])) < 0.02
    assert np.mean(np.array(orders[1, 0]) == np.array(orders[2, 0])) < 0.02


@given(dp=st.sampled_from([1, 2, 3, 4, 6, 12]), step=st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_replicas_share_out_one_global_batch(dp: int, step: int) -> None:
    file = numbered(2000)
    whole = samples(file, step, 12, 16, 5)
    parts = [samples(file, step, 12, 16, 5).reshape(dp, 12 // dp, 17)[replica] for replica in range(dp)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_order_is_pinned() -> None:
    # A resumed run must go on with the order it began with, whatever version wrote the checkpoint.
    assert samples(numbered(101), 0, 5, 10, 7)[:, 0].tolist() == [80, 50, 30, 20, 90]


def test_too_little_text_is_said_with_the_numbers() -> None:
    with pytest.raises(InputError, match="holds 100 tokens, 9 windows of 10; a step of 16 samples needs 161"):
        Sampler(numbered(100), Reading(16, 10, 0))
    with pytest.raises(InputError, match="holds 0 tokens"):
        samples(TokenFile(np.empty(0, np.uint16), 300), 0, 1, 8, 0)


TEXTS = st.lists(st.integers(1, 25), min_size=6, max_size=40)  # lengths of documents in tokens
LAYOUTS = st.sampled_from([(1, 1), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1), (3, 4), (6, 2), (12, 1), (4, 3)])


def written(lengths: list[int]) -> TokenFile:
    """Every token is its own position; documents of these lengths."""
    bounds = np.cumsum([0, *lengths])
    return TokenFile(np.arange(bounds[-1], dtype=np.uint32), int(bounds[-1]), bounds.astype(np.int64))


@given(lengths=TEXTS, pack=st.sampled_from(["stream", "documents", "pad"]), layout=LAYOUTS, seed=st.integers(0, 9),
       step=st.integers(0, 20), seq_len=st.integers(1, 8))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_layout_reads_the_same_global_batches_at_any_step(
    lengths: list[int], pack: Pack, layout: tuple[int, int], seed: int, step: int, seq_len: int
) -> None:
    file = written(lengths)
    alone = Reading(12, seq_len, seed, pack)
    try:
        undisturbed = Sampler(file, alone)
    except InputError:
        assume(False)
    for _ in range(step % 3):  # what was read before changes nothing
        undisturbed.batch(step - 1)
    other = Sampler(file, replace(alone, replicas=layout[0], micro_batches=layout[1])).batch(step)
    ours = undisturbed.batch(step)
    assert sorted(map(tuple, other.samples.tolist())) == sorted(map(tuple, ours.samples.tolist()))
    if other.tokens is not None and other.squares is not None and ours.tokens is not None and ours.squares is not None:
        assert len(other.tokens) == len(other.squares) == layout[0]
        assert sum(other.tokens) == sum(ours.tokens)
        assert sum(other.squares) == sum(ours.squares)


@given(lengths=TEXTS, seq_len=st.integers(1, 12), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_padded_samples_train_each_token_of_a_document_but_its_first_once_an_epoch(
    lengths: list[int], seq_len: int, seed: int
) -> None:
    file = written(lengths)
    count = sum(-(-(length - 1) // seq_len) for length in lengths)
    assume(count > 0)
    sampler = Sampler(file, Reading(1, seq_len, seed, "pad"))
    assert sampler.count == count
    batches = [sampler.batch(step) for step in range(count)]
    rows = np.concatenate([batch.samples for batch in batches])
    targets = rows[:, 1:][rows[:, 1:] >= 0]
    first = {int(begin) for begin in np.cumsum([0, *lengths])}
    assert sorted(targets.tolist()) == [token for token in range(sum(lengths)) if token not in first]
    bounds = np.cumsum([0, *lengths])
    for row in rows:
        held = row[row >= 0]
        assert (np.diff(held) == 1).all()
        assert np.searchsorted(bounds, held[0], "right") == np.searchsorted(bounds, held[-1], "right")  # one document
    assert sum(batch.tokens[0] for batch in batches if batch.tokens) == len(targets)


@given(lengths=TEXTS, seq_len=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_places_in_a_window_begin_anew_with_each_document(lengths: list[int], seq_len: int) -> None:
    file = written(lengths)
    assume(window_count(file, seq_len) > 0)
    batch = Sampler(file, Reading(1, seq_len, 0, "documents")).batch(0)
    assert batch.positions is not None
    assert batch.squares is not None
    (row,), (places,) = batch.samples.tolist(), batch.positions.tolist()
    begins = set(np.cumsum([0, *lengths]).tolist())
    runs, expected = [0], -1
    for index, token in enumerate(row):
        expected = 0 if token in begins or index == 0 else expected + 1
        assert places[index] == expected
        if index < seq_len:
            runs = [*runs, 1] if expected == 0 else [*runs[:-1], runs[-1] + 1]
    assert batch.squares == (sum(run * run for run in runs),)
    assert batch.tokens == (sum(token not in begins for token in row[1:]),)


def test_an_epoch_ends_inside_a_batch() -> None:
    sampler = Sampler(numbered(7 * 5 + 1), Reading(4, 5, 3))
    rows = np.concatenate([sampler.batch(step).samples[:, 0] // 5 for step in range(7)])  # 4 epochs of 7 windows
    for epoch in rows.reshape(4, 7):
        assert sorted(epoch.tolist()) == list(range(7))


def test_what_cannot_be_read_is_refused_with_the_field() -> None:
    with pytest.raises(InputError, match=r"data\.pack = documents: needs the boundaries of documents"):
        Sampler(numbered(100), Reading(2, 8, 0, "documents"))
    with pytest.raises(InputError, match="holds 6 tokens, 3 samples of 4; a step of 4 samples needs longer documents"):
        Sampler(written([2, 2, 2]), Reading(4, 4, 0, "pad"))


def test_tokens_beyond_the_models_vocabulary_are_refused_with_all_else() -> None:
    given = plan(global_batch=16, seq_len=32)
    check_readable(TokenFile(np.zeros(600, np.uint16), 256), given)
    with pytest.raises(InputError) as caught:
        check_readable(TokenFile(np.zeros(500, np.uint16), 257), given)
    assert [complaint.field for complaint in caught.value.complaints] == ["model.vocab", "data"]
