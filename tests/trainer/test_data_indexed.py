"""Megatron's pairs of .bin and .idx, written here from the definition of the format."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError
from meshwright.files.setup import DataSource
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_indexed import highest_token, open_indexed
from meshwright.trainer.data_prepare import prepare

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_pair(place: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "uint16") -> Path:
    """`documents` of sequences of tokens; the .idx."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = [len(sequence) for sequence in sequences]
    width = np.dtype(dtype).itemsize
    np.array([token for sequence in sequences for token in sequence], dtype).tofile(place.with_suffix(".bin"))
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, CODES[dtype], len(sequences), len(documents) + 1)
    bounds = np.cumsum([0, *(len(document) for document in documents)])
    places = np.cumsum([0, *lengths])[:-1] * width
    body = np.array(lengths, "<i4").tobytes() + places.astype("<i8").tobytes() + bounds.astype("<i8").tobytes()
    place.with_suffix(".idx").write_bytes(head + body)
    return place.with_suffix(".idx")


def silent(line: str) -> None:
    assert line


DOCUMENTS = [[[5, 6], [7]], [[8, 9, 10, 11]], [[12]]]


@pytest.mark.parametrize("dtype", CODES)
def test_documents_of_any_type_of_token(tmp_path: Path, dtype: str) -> None:
    found = open_indexed(write_pair(tmp_path / "a", DOCUMENTS, dtype))
    assert found.tokens.dtype == dtype
    assert found.tokens.tolist() == list(range(5, 13))
    assert found.documents.tolist() == [0, 3, 7, 8]
    assert highest_token(found, silent) == 12


@pytest.mark.parametrize("path", ["a.bin", "a.idx", "a", ""])
def test_one_pair_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write_pair(tmp_path / "data" / "a", DOCUMENTS)
    folder = prepare(DataSource(str(tmp_path / "data" / path)), 13, silent)
    file = open_tokens(folder)
    assert file.tokens.tolist() == list(range(5, 13))
    assert file.vocab == 13
    assert file.documents is not None
    assert file.documents.tolist() == [0, 3, 7, 8]
    assert sorted(part.name for part in folder.iterdir()) == ["documents.bin", "header.json"]


def test_several_pairs_are_joined_in_the_order_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    write_pair(tmp_path / "data" / "b", [[[70_000, 1]]], "int32")
    write_pair(tmp_path / "data" / "a", DOCUMENTS)
    file = open_tokens(prepare(DataSource(str(tmp_path / "data")), 128_256, silent))
    assert file.tokens.dtype == np.uint32
    assert file.tokens.tolist() == [*range(5, 13), 70_000, 1]
    assert file.documents is not None
    assert file.documents.tolist() == [0, 3, 7, 8, 10]


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    pair = write_pair(tmp_path / "a", DOCUMENTS)
    for _ in range(2):  # made, and from the cache
        with pytest.raises(InputError, match=r"data\.path = .*token ids up to 12, the model's vocabulary is 12"):
            prepare(DataSource(str(pair)), 12, silent)
    with pytest.raises(InputError, match=r"data\.tokenizer = x: does not apply: the data is tokenised already"):
        prepare(DataSource(str(pair), tokenizer="x"), 13, silent)


def test_a_damaged_pair_is_refused_with_the_numbers(tmp_path: Path) -> None:
    index = write_pair(tmp_path / "a", DOCUMENTS)
    tokens, whole = tmp_path / "a.bin", index.read_bytes()
    tokens.write_bytes(tokens.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"a\.bin: is cut short: 15 bytes, a\.idx counts 8 tokens of 2"):
        open_indexed(index)
    tokens.write_bytes(bytes(18))
    with pytest.raises(InputError, match=r"a\.bin: is longer than its index: 18 bytes"):
        open_indexed(index)
    for content, said in (
        (b"", "is no index"), (b"x" * 100, "is no index"), (whole[:-1], "113 bytes; 4 sequences and 4 document ends"),
        (whole[:9] + b"\2" + whole[10:], "version 2"), (whole[:17] + b"\6" + whole[18:], "type of token 6"),
        (whole[:34] + b"\3" + whole[35:], "does not list its sequences one after the other"),
        (whole[:-8] + b"\3" + whole[-7:], "its documents do not cover its 4 sequences"),
    ):  # fmt: skip
        index.write_bytes(content)
        with pytest.raises(InputError, match=said):
            open_indexed(index)


def test_a_token_below_zero_is_refused_with_its_place(tmp_path: Path) -> None:
    found = open_indexed(write_pair(tmp_path / "a", [[[5, 6, -1]]], "int32"))
    with pytest.raises(InputError, match=r"a\.bin: has the token -1 at 2"):
        highest_token(found, silent)


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    index = write_pair(tmp_path / "a", DOCUMENTS)
    index.unlink()
    with pytest.raises(InputError, match=r"a\.bin: has no a\.idx beside it"):
        prepare(DataSource(str(tmp_path)), 13, silent)
    write_pair(tmp_path / "a", DOCUMENTS)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(InputError, match=r"a\.idx: has no a\.bin beside it"):
        prepare(DataSource(str(tmp_path)), 13, silent)
