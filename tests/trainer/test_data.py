"""Packing, the cache, and the order of samples."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.files.setup import DataSource
from meshwright.trainer.data import (
    TokenFile,
    cache_folder,
    check_enough,
    open_tokens,
    prepare,
    samples,
    shuffled,
    window_count,
)

pytest.importorskip("tokenizers")


def silent(line: str) -> None:
    assert line


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "texts"
    folder.mkdir()
    for index in range(4):
        (folder / f"{index}.txt").write_text(f"Document {index} says the same thing again and again.\n" * 50)
    return folder


def numbered(count: int) -> TokenFile:
    """Every token is its own position."""
    return TokenFile(np.arange(count, dtype=np.uint32), count)


def test_documents_are_packed_with_an_end_after_each(texts: Path) -> None:
    from tokenizers import Tokenizer

    folder = prepare(DataSource(str(texts)), 400, silent)
    file = open_tokens(folder)
    assert file.tokens.dtype == np.uint16
    assert int(file.tokens.max()) < file.vocab <= 400
    assert int((file.tokens == 0).sum()) == 4
    assert file.tokens[-1] == 0
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    parts = np.split(np.asarray(file.tokens), np.flatnonzero(file.tokens == 0))
    assert tokenizer.decode(parts[0].tolist()) == (texts / "0.txt").read_text()


def test_little_text_makes_few_tokens_however_large_the_vocabulary(texts: Path) -> None:
    file = open_tokens(prepare(DataSource(str(texts)), 200_000, silent))
    assert file.vocab < 1000
    assert file.tokens.dtype == np.uint16  # follows the tokenizer that came out


def test_large_vocabularies_are_read_in_four_bytes(tmp_path: Path) -> None:
    tokens = np.array([0, 70_000, 128_255], np.uint32)
    tokens.tofile(tmp_path / "tokens.bin")
    header = {
        "format": 1,
        "dtype": "uint32",
        "count": 3,
        "vocab": 128_256,
        "documents": 1,
        "text_bytes": 9,
        "corpus": "",
    }
    (tmp_path / "header.json").write_text(json.dumps(header))
    assert samples(open_tokens(tmp_path), 0, 1, 2, 0).tolist() == [[0, 70_000, 128_255]]


def test_the_cache_serves_the_same_folder_until_something_changes(texts: Path) -> None:
    said: list[str] = []
    first = prepare(DataSource(str(texts)), 400, said.append)
    assert any("learning" in line for line in said)
    said.clear()
    assert prepare(DataSource(str(texts)), 400, said.append) == first
    assert len(said) == 1
    others = {prepare(DataSource(str(texts)), 300, silent), prepare(DataSource(str(texts), vocab=350), 400, silent),
              prepare(DataSource(str(texts), limit_mib=0.001), 400, silent)}  # fmt: skip
    (texts / "0.txt").write_text("Something else.")
    others.add(prepare(DataSource(str(texts)), 400, silent))
    assert len(others | {first}) == 5
    assert not list((cache_folder() / "tokens").glob(".making-*"))


def test_the_limit_is_honoured_and_said(texts: Path) -> None:
    said: list[str] = []
    folder = prepare(DataSource(str(texts), limit_mib=0.001), 300, said.append)
    assert json.loads((folder / "header.json").read_text())["text_bytes"] == 1049
    assert "limited to 0.001 MiB" in said[-1]


def test_the_standard_library_is_prepared_once_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path))
    said: list[str] = []
    folder = prepare(DataSource(limit_mib=2), 2048, said.append)
    assert len(said) >= 4  # reading, learning, and each part of the text
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again: list[str] = []
    assert prepare(DataSource(limit_mib=2), 2048, again.append) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert len(again) == 1
    file = open_tokens(folder)
    assert file.vocab == 2048
    assert 4e5 < len(file.tokens) < 1.2e6  # 2 to 5 bytes a token


def test_a_tokenizer_larger_than_the_model_is_refused(texts: Path) -> None:
    with pytest.raises(InputError, match=r"data\.vocab = 500: is more than the model's vocabulary of 400"):
        prepare(DataSource(str(texts), vocab=500), 400, silent)


def test_a_cache_that_cannot_be_written_is_one_line(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(texts / "0.txt"))
    with pytest.raises(InputError, match=r"cannot be written .*MESHWRIGHT_CACHE"):
        prepare(DataSource(str(texts)), 400, silent)


def test_a_damaged_token_folder_is_refused(texts: Path) -> None:
    folder = prepare(DataSource(str(texts)), 400, silent)
    whole = (folder / "tokens.bin").read_bytes()
    (folder / "tokens.bin").write_bytes(whole[:-2])
    with pytest.raises(InputError, match=r"tokens\.bin: must hold \d+ tokens of 2 bytes"):
        open_tokens(folder)
    with pytest.raises(InputError, match="no such file"):
        open_tokens(texts)


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
        check_enough(numbered(100), 16, 10)
    with pytest.raises(InputError, match="holds 0 tokens"):
        samples(TokenFile(np.empty(0, np.uint16), 300), 0, 1, 8, 0)
