"""Which text is read, in which order, and how much of it."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.trainer.corpus import fingerprint, open_corpus
from meshwright.trainer.data_readers import PIECE_BYTES, pieces


def documents(path: Path, limit: int | None = None) -> list[str]:
    out, held = [], ""
    for piece in pieces(open_corpus(str(path)), limit):
        held += piece.text
        if piece.ends_document:
            out.append(held)
            held = ""
    assert held == ""  # the last piece always ends a document
    return out


def test_a_folder_is_read_in_the_order_of_names_without_hidden_or_binary_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("bravo")
    (tmp_path / "a.md").write_text("alpha")
    (tmp_path / "sub" / "c.txt").write_text("charlie")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    assert documents(tmp_path) == ["alpha", "bravo", "charlie"]


def test_json_lines_hold_a_document_a_line(tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text("\n".join(json.dumps({"text": text, "id": 1}) for text in ("one\ntwo", "drei")) + "\n\n")
    assert documents(file) == ["one\ntwo", "drei"]
    file.write_text('{"text": "fine"}\n{"txt": "wrong"}\n')
    with pytest.raises(InputError, match=r"d\.jsonl: line 2: must be an object with the document under \"text\""):
        documents(file)
    file.write_text('{"text": "fine"}\n{"text"\n')
    with pytest.raises(InputError, match="line 2: is not JSON"):
        documents(file)


def test_long_documents_travel_in_pieces(tmp_path: Path) -> None:
    line = "a line of text that is not very long\n"
    text = line * (3 * PIECE_BYTES // len(line))
    (tmp_path / "long.txt").write_text(text)
    parts = list(pieces(open_corpus(str(tmp_path))))
    assert len(parts) == 3
    assert [part.ends_document for part in parts] == [False, False, True]
    assert "".join(part.text for part in parts) == text
    assert all(part.text.endswith("\n") for part in parts)


@given(texts=st.lists(st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), min_size=1), min_size=1),
       limit=st.integers(1, 60))  # fmt: skip
def test_the_limit_is_bytes_and_keeps_a_prefix(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    for index, text in enumerate(texts):
        (folder / f"{index:04}.txt").write_text(text, encoding="utf-8")
    whole, cut = "".join(documents(folder)), "".join(documents(folder, limit))
    size = len(cut.encode())
    assert whole.startswith(cut)
    assert size <= limit
    assert size > limit - 4 or cut == whole  # at most one character was given up


def test_text_that_is_not_utf8_is_refused_with_its_place_and_the_cure(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fine")
    (tmp_path / "latin1.txt").write_bytes("Die Übung".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin1\.txt: is not UTF-8 \(byte 0xdc at offset 4\) \(.*iconv"):
        documents(tmp_path)
    (tmp_path / "latin1.txt").write_bytes("Die Übung".encode("utf-16"))
    with pytest.raises(InputError, match=r"latin1\.txt: is UTF-16 text .*iconv -f utf-16"):
        documents(tmp_path)
    (tmp_path / "latin1.txt").write_bytes(b"\xef\xbb\xbfmarked")
    assert documents(tmp_path) == ["fine", "marked"]


def test_the_fingerprint_follows_changes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    seen = {fingerprint(open_corpus(str(tmp_path)))}
    assert fingerprint(open_corpus(str(tmp_path))) in seen
    (tmp_path / "a.txt").write_text("alpha beta")
    seen.add(fingerprint(open_corpus(str(tmp_path))))
    (tmp_path / "b.txt").write_text("")
    seen.add(fingerprint(open_corpus(str(tmp_path))))
    assert len(seen) == 3


def test_the_default_corpus_is_the_standard_library_without_tests_and_packages() -> None:
    corpus = open_corpus(None)
    names = [file.relative_to(corpus.root).as_posix() for file in corpus.files]
    assert {"argparse.py", "json/decoder.py"} <= set(names)
    assert not [name for name in names if {"site-packages", "test", "tests"} & set(name.split("/"))]
    size = sum(len(piece.text) for piece in pieces(corpus, 10**6))
    assert 0.9e6 < size <= 1e6


@pytest.mark.parametrize(("name", "said"), [("missing", "no such file or folder"), ("empty", "holds no text files")])
def test_nothing_to_read_is_an_input_error(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"data.path = .*{said}"):
        open_corpus(str(tmp_path / name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_sockets_in_a_folder_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "b.jsonl")
    (tmp_path / "c.txt").write_text("text")
    assert documents(tmp_path) == ["text"]


def test_kinds_of_files_are_not_mixed_unasked(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("About these texts.")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.jsonl").write_text('{"text": "two"}\n')
    with pytest.raises(InputError, match=r"data\.path = .*mixes kinds of files: 1 of text, 2 of JSON lines \(.*\*\.js"):
        documents(tmp_path)
    assert documents(tmp_path / "*.jsonl") == ["one"]
    assert documents(tmp_path / "**" / "*.jsonl") == ["one", "two"]
    with pytest.raises(InputError, match=r"data\.path = .*no such file or folder"):
        documents(tmp_path / "*.parquet")


def test_empty_files_are_no_text(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"data\.path = .*is empty: 2 of 0 bytes"):
        documents(tmp_path)
    (tmp_path / "c.txt").write_text("text")
    assert documents(tmp_path) == ["text"]


def test_binary_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(InputError, match="holds no text files, 1 binary"):
        documents(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    assert open_corpus(str(tmp_path)).left_out == (tmp_path / "picture.png",)


def test_json_files_alone_are_not_taken_for_prose(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"text": "one"}\n{"text": "two"}\n')
    for path in (tmp_path, tmp_path / "a.json"):
        with pytest.raises(InputError, match=r"holds \.json files alone .*end in \.jsonl"):
            documents(path)
    (tmp_path / "b.py").write_text("x = 1\n")
    assert len(documents(tmp_path)) == 2  # a folder of sources may hold some
