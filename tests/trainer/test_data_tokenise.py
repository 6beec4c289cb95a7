"""Tokenising in processes gives what one process gives, and says what is wrong."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.files.setup import DataSource
from meshwright.trainer import data_readers, data_tokenise
from meshwright.trainer.corpus import open_corpus
from meshwright.trainer.data import open_tokens
from meshwright.trainer.data_prepare import cache_folder, prepare
from meshwright.trainer.data_tokenise import Spelling, tokenise
from meshwright.trainer.tokenizer import train_tokenizer

pytest.importorskip("tokenizers")


def silent(line: str) -> None:
    assert line


@pytest.fixture
def spelling(tmp_path: Path) -> Spelling:
    tokenizer = train_tokenizer(["one two three four five"] * 20, 280)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return Spelling(tokenizer, tmp_path / "tokenizer.json", 0)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_tokenise, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(data_tokenise, "usable_cores", lambda: 2)


def corpus_of(folder: Path) -> Path:
    folder.mkdir()
    for index in range(9):
        (folder / f"{index}.txt").write_text(f"one two {index} three\nfour five\n" * (15 + 4 * index))
    return folder


def made(work: Path, texts: Path, spelling: Spelling) -> tuple[list[int], list[int]]:
    work.mkdir(exist_ok=True)
    (work / "tokenizer.json").write_bytes(spelling.file.read_bytes())
    said: list[str] = []
    found = tokenise(work, open_corpus(str(texts)), spelling, None, said.append)
    assert said[0] == "data: tokenising in 2 processes"
    tokens, bounds = np.fromfile(work / "tokens.bin", found.dtype), np.fromfile(work / "documents.bin", np.int64)
    assert (len(tokens), len(bounds)) == (found.count, found.documents + 1)
    assert not list(work.glob("part-*"))
    return tokens.tolist(), bounds.tolist()


@pytest.mark.usefixtures("small_blocks")
def test_processes_make_the_same_tokens_in_the_same_order(tmp_path: Path, spelling: Spelling) -> None:
    texts = corpus_of(tmp_path / "texts")
    said: list[str] = []
    together = made(tmp_path / "a", texts, spelling)
    alone_texts = open_corpus(str(texts))
    work = tmp_path / "b"
    work.mkdir()
    found = tokenise(work, alone_texts, spelling, 10**9, said.append)  # a limit is kept by one process
    tokens = np.fromfile(work / "tokens.bin", found.dtype)
    assert together == (tokens.tolist(), np.fromfile(work / "documents.bin", np.int64).tolist())
    assert together[1][-1] == len(tokens)
    assert [int(tokens[end - 1]) for end in together[1][1:]] == [0] * 9  # an end of text behind each


@pytest.mark.usefixtures("small_blocks")
def test_tables_are_shared_out_too(tmp_path: Path, spelling: Spelling, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(data_readers, "PIECE_BYTES", 500)
    texts = [f"one two {index} three" * 4 for index in range(60)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", row_group_size=3)
    tokens, bounds = made(tmp_path / "a", tmp_path / "a.parquet", spelling)
    assert len(bounds) == 61
    for text, begin, end in zip(texts, bounds, bounds[1:], strict=False):
        assert spelling.tokenizer.decode(tokens[begin : end - 1]) == text


@pytest.mark.usefixtures("small_blocks")
def test_what_a_process_cannot_read_is_said_once(tmp_path: Path, spelling: Spelling) -> None:
    lines = "".join(json.dumps({"text": "one two three " * 20}) + "\n" for _ in range(20))
    texts = tmp_path / "texts"
    texts.mkdir()
    for index in range(4):
        (texts / f"{index}.jsonl").write_text(lines + '{"txt": "four"}\n' * (index == 2))
    with pytest.raises(InputError, match=r'2\.jsonl: line 21: must be an object with the document under "text"'):
        made(tmp_path / "a", texts, spelling)


@pytest.mark.usefixtures("small_blocks")
def test_a_process_that_dies_ends_the_rest(tmp_path: Path, spelling: Spelling) -> None:
    texts = corpus_of(tmp_path / "texts")
    broken = Spelling(spelling.tokenizer, tmp_path / "broken.json", 0)
    broken.file.write_text("{}")
    with pytest.raises((RunFailed, InputError), match="is no tokenizer"):
        made(tmp_path / "a", texts, broken)


PREPARE = """
import sys
from meshwright.files.setup import DataSource
from meshwright.trainer.data_prepare import prepare
print(prepare(DataSource(sys.argv[1]), 300, lambda line: print(line, flush=True)))
"""


def started(texts: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PREPARE, str(texts)], stdout=subprocess.PIPE, text=True)


def test_several_runs_that_make_it_at_once_get_one_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    texts = corpus_of(tmp_path / "texts")
    runs = [started(texts) for _ in range(3)]
    ends = [run.communicate(timeout=60)[0].splitlines()[-1] for run in runs]
    assert len(set(ends)) == 1
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert [path.name for path in (cache_folder() / "tokens").iterdir()] == [Path(ends[0]).name]
    assert prepare(DataSource(str(texts)), 300, silent) == Path(ends[0])
    assert open_tokens(Path(ends[0])).documents is not None


def test_an_interrupted_run_leaves_nothing_that_is_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    texts = corpus_of(tmp_path / "texts")
    run = started(texts)
    assert run.stdout is not None
    run.stdout.readline()  # it has begun
    run.kill()
    run.wait()
    folder = prepare(DataSource(str(texts)), 300, silent)
    assert open_tokens(folder).tokens[-1] == 0
    for left in folder.parent.glob(".making-*"):
        week_ago = time.time() - 8 * 24 * 3600
        os.utime(left, (week_ago, week_ago))
    (texts / "new.txt").write_text("one")
    prepare(DataSource(str(texts)), 300, silent)
    assert not list(folder.parent.glob(".making-*"))
