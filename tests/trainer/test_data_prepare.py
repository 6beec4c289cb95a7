"""Preparing text: packing and the cache."""

import json
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError
from meshwright.files.setup import DataSource
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_prepare import cache_folder, prepare
from meshwright.trainer.tokenizer import train_tokenizer

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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer that pads, cuts, and ends documents with its own token."""
    from tokenizers import Tokenizer

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"eos_token_id": 3}')
    tokenizer = train_tokenizer(["Document says the same thing again"] * 9, 290)
    tokenizer.add_special_tokens(["<stop>"])
    tokenizer.enable_padding(length=7)
    tokenizer.enable_truncation(5)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert isinstance(tokenizer, Tokenizer)
    return folder


def kinds_of(model: Path) -> int:
    return len(json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]) + 1


def test_the_tokenizer_beside_the_models_config_is_used(texts: Path, model: Path) -> None:
    from tokenizers import Tokenizer

    (model / "tokenizer_config.json").write_text('{"eos_token": {"content": "<stop>"}}')
    for config in (model / "config.json", model):
        file = open_tokens(folder := prepare(DataSource(str(texts)), 400, silent, str(config)))
        assert file.vocab == kinds_of(model)
        assert file.documents is not None
        stop = Tokenizer.from_file(str(model / "tokenizer.json")).token_to_id("<stop>")
        assert (file.tokens == stop).sum() == 4
        assert [int(file.tokens[end - 1]) for end in file.documents[1:]] == [stop] * 4
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        words = file.tokens[: file.documents[1] - 1].tolist()
        assert tokenizer.decode(words) == (texts / "0.txt").read_text()  # neither cut nor padded
    assert open_tokens(prepare(DataSource(str(texts), vocab=350), 400, silent, str(model))).vocab != file.vocab


def test_where_the_end_of_text_is_written(texts: Path, model: Path) -> None:
    def end(**given: str) -> int:
        return int(open_tokens(prepare(DataSource(str(texts), **given), 400, silent, str(model))).tokens[-1])

    assert end() == 3  # config.json
    assert end(end_of_text="<stop>") == kinds_of(model) - 1
    (model / "tokenizer_config.json").write_text('{"eos_token": "a"}')
    assert end() == end(end_of_text="a")
    with pytest.raises(InputError, match=r"data\.end_of_text = '<eos>': is no token of .*tokenizer\.json"):
        end(end_of_text="<eos>")


def test_entries_that_no_text_needs_may_lie_beyond_the_models_vocabulary(texts: Path, model: Path) -> None:
    kinds = kinds_of(model)
    file = open_tokens(prepare(DataSource(str(texts)), kinds - 1, silent, str(model)))  # <stop> does not occur
    assert file.vocab == int(file.tokens.max()) + 1 < kinds


def test_a_tokenizer_that_cannot_be_used_is_refused(texts: Path, model: Path) -> None:
    with pytest.raises(InputError, match=r"data\.tokenizer = .*token ids up to \d+, the model's vocabulary is 260"):
        prepare(DataSource(str(texts), tokenizer=str(model)), 260, silent)
    with pytest.raises(InputError, match=r"data\.vocab = 300: sizes a tokenizer to train, but data\.tokenizer names"):
        prepare(DataSource(str(texts), tokenizer=str(model), vocab=300), 400, silent)
    with pytest.raises(InputError, match=r"data\.tokenizer = .*no such file"):
        prepare(DataSource(str(texts), tokenizer=str(texts / "none.json")), 400, silent)
    with pytest.raises(InputError, match=r"data\.tokenizer: is no tokenizer"):
        prepare(DataSource(str(texts), tokenizer=str(texts / "0.txt")), 400, silent)
    with pytest.raises(InputError, match=r"data\.end_of_text = 'x': needs a tokenizer that has it"):
        prepare(DataSource(str(texts), end_of_text="x"), 400, silent)
