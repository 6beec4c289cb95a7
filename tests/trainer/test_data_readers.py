"""Shares and documents: nothing lost, nothing twice, wherever a corpus is cut."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.trainer.corpus import open_corpus
from meshwright.trainer.data_readers import Share, pieces, read, shares

LINES = st.lists(st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), max_size=12), max_size=12)


def cut_up(file: Path, size: int) -> list[Share]:
    end = file.stat().st_size
    return [Share(file, first, min(end, first + size), size, first + size >= end) for first in range(0, end, size)]


def documents(path: Path, field: str = "text") -> list[str]:
    out, held = [], ""
    for piece in pieces(open_corpus(str(path), field)):
        held += piece.text
        if piece.ends_document:
            out.append(held)
            held = ""
    assert held == ""
    return out


@given(lines=LINES, size=st.integers(1, 30), newline=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_text_cut_anywhere_is_read_whole_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int, newline: bool
) -> None:
    file = tmp_path_factory.mktemp("text") / "a.txt"
    text = "\n".join(lines) + "\n" * newline + "end"
    file.write_text(text, encoding="utf-8")
    corpus, whole = open_corpus(str(file)), file.stat().st_size
    cuts = [
        Share(file, first, min(whole, first + size), size, first + size >= whole) for first in range(0, whole, size)
    ]
    parts = [piece for cut in cuts for piece in read(corpus, cut)]
    assert "".join(part.text for part in parts) == text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    assert [part.ends_document for part in parts].count(True) == 1
    assert parts[-1].ends_document


@given(texts=LINES, size=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_json_lines_cut_anywhere_are_read_once(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int
) -> None:
    file = tmp_path_factory.mktemp("lines") / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "end"]), encoding="utf-8")
    corpus, whole = open_corpus(str(file)), file.stat().st_size
    cuts = [
        Share(file, first, min(whole, first + size), size, first + size >= whole) for first in range(0, whole, size)
    ]
    assert [piece.text for cut in cuts for piece in read(corpus, cut)] == [*texts, "end"]


def test_a_damaged_line_is_named_from_any_share(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"content": "one"}\n{"content": "two"}\n{"text": "three"}\n')
    corpus = open_corpus(str(file), "content")
    with pytest.raises(InputError, match=r'line 3: .*under "content" \(the keys are text\)'):
        list(read(corpus, Share(file, 25, 60, 35, True)))


def parquet(file: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), file, row_group_size=2)


def streamed(file: Path, columns: dict[str, list[Any]]) -> None:
    """As Hugging Face's `datasets` writes its files."""
    import pyarrow

    table = pyarrow.table(columns)
    with pyarrow.OSFile(str(file), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def filed(file: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow

    table = pyarrow.table(columns)
    with pyarrow.OSFile(str(file), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


TABLES = [("a.parquet", parquet), ("a.arrow", streamed), ("a.arrow", filed)]
Writer = Callable[[Path, dict[str, list[Any]]], None]


@pytest.mark.parametrize(("name", "write"), TABLES)
def test_tables_hold_a_document_a_row(tmp_path: Path, name: str, write: Writer) -> None:
    pytest.importorskip("pyarrow")
    texts = ["eins\nzwei", "", "drei", "\N{SNOWMAN}", "fünf"]
    write(tmp_path / name, {"id": [1, 2, 3, 4, 5], "body": texts})
    assert documents(tmp_path, "body") == texts
    corpus = open_corpus(str(tmp_path), "body")
    (whole,) = shares(corpus)
    assert whole.last == 3  # row groups, or batches, of 2
    apart = [Share(whole.file, part, part + 1, 1, part == 2) for part in range(3)]
    assert [piece.text for share in apart for piece in read(corpus, share)] == texts


@pytest.mark.parametrize(("name", "write"), TABLES)
def test_tables_without_the_text_are_refused(tmp_path: Path, name: str, write: Writer) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / name
    write(file, {"texts": ["one"], "id": [1]})
    with pytest.raises(InputError, match=r"""data\.field: has no column "text" \(did you mean 'texts'"""):
        documents(tmp_path)
    with pytest.raises(InputError, match='column "id": holds int64, not text'):
        documents(tmp_path, "id")
    write(file, {"text": ["one", "two", "three", None]})
    with pytest.raises(InputError, match=r'part 1, row 1: has no text under "text"'):
        documents(tmp_path)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(InputError, match=f"{name}: cannot be read as "):
        documents(tmp_path)


def test_without_pyarrow_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs the package 'pyarrow'.*pip install 'meshwright\[tables\]'"):
        documents(tmp_path)


def saved(folder: Path, texts: list[list[str]]) -> None:
    """A folder as `save_to_disk` leaves it: Arrow streams, and their order in state.json."""
    folder.mkdir(parents=True)
    names = [f"data-{index:05}-of-{len(texts):05}.arrow" for index in range(len(texts))]
    for name, part in zip(names, texts, strict=True):
        streamed(folder / name, {"text": part})
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def test_a_saved_folder_is_read_in_the_order_of_its_state(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    saved(tmp_path / "one", [["a", "b"], ["c"]])
    assert documents(tmp_path / "one") == ["a", "b", "c"]
    state = tmp_path / "one" / "state.json"
    files = json.loads(state.read_text())["_data_files"]
    state.write_text(json.dumps({"_data_files": files[::-1]}))
    assert documents(tmp_path / "one") == ["c", "a", "b"]
    (tmp_path / "one" / files[0]["filename"]).unlink()
    with pytest.raises(InputError, match=r"00000-of-00002\.arrow: is missing, but listed in state\.json"):
        documents(tmp_path / "one")


def test_of_saved_splits_train_is_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    saved(tmp_path / "all" / "train", [["a"]])
    saved(tmp_path / "all" / "test", [["b"]])
    splits = tmp_path / "all" / "dataset_dict.json"
    splits.write_text('{"splits": ["test", "train"]}')
    assert documents(tmp_path / "all") == ["a"]
    assert documents(tmp_path / "all" / "test") == ["b"]
    splits.write_text('{"splits": ["test", "dev"]}')
    with pytest.raises(InputError, match=r"has the splits test, dev .*the folder of one split"):
        documents(tmp_path / "all")
