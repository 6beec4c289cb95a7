"""Token folders, whole and damaged."""

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError
from meshwright.files.strict_json import dump
from meshwright.trainer.data import Header, open_tokens


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
    assert open_tokens(tmp_path).tokens.tolist() == [0, 70_000, 128_255]


def folder_of(place: Path, tokens: list[int], documents: list[int]) -> Path:
    np.array(tokens, np.uint16).tofile(place / "tokens.bin")
    np.array(documents, np.int64).tofile(place / "documents.bin")
    dump(Header("uint16", len(tokens), 300, len(documents) - 1, 5, "text"), place / "header.json")
    return place


def test_where_documents_begin_is_known(tmp_path: Path) -> None:
    file = open_tokens(folder_of(tmp_path, [5, 6, 0, 7, 0], [0, 3, 5]))
    assert file.documents is not None
    assert file.documents.tolist() == [0, 3, 5]


@pytest.mark.parametrize(("name", "what"), [("tokens.bin", "5 tokens of 2 bytes"), ("documents.bin", "3 places of 8")])
def test_a_damaged_token_folder_is_refused(tmp_path: Path, name: str, what: str) -> None:
    file = folder_of(tmp_path, [5, 6, 0, 7, 0], [0, 3, 5]) / name
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(InputError, match=f"{name}: must hold {what}"):
        open_tokens(tmp_path)
    (tmp_path / "header.json").unlink()
    with pytest.raises(InputError, match="no such file"):
        open_tokens(tmp_path)


def test_tokens_elsewhere_that_changed_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    np.arange(6, dtype=np.int32).tofile(other)
    dump(Header("int32", 5, 300, 1, 0, "tokens", str(other)), tmp_path / "header.json")
    with pytest.raises(InputError, match=r"other\.bin: must hold 5 tokens of 4 bytes \(it has changed since"):
        open_tokens(tmp_path)
