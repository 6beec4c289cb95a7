"""Text to train on: a folder or file of the user's, or the sources of the Python standard library."""

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.basics.errors import bad_input

PIECE_BYTES = 2**20  # long documents travel in pieces of about this size
_JSON_LINES = frozenset({".jsonl", ".ndjson"})
# Not the library's own prose: tests, installed packages, and generated tables of code points.
_STDLIB_SKIPS = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "ensurepip", "encodings", "lib-dynload"}
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of text below `root`, in a fixed order; `label` names it to people."""

    label: str
    root: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one document."""

    text: str
    ends_document: bool


def open_corpus(path: str | None) -> Corpus:
    """The corpus at `path`: a folder (searched below; hidden files are left out), or one file. None: the standard
    library of the Python that runs. Files ending in .jsonl hold a document a line under "text"; any other file is one
    document of UTF-8 text, unless it is binary. Raises InputError when there is nothing to read.
    """
    if path is None:
        root = Path(sysconfig.get_path("stdlib"))
        files = tuple(file for file in _walk(root, _STDLIB_SKIPS) if file.suffix == ".py")
        label = "the sources of the Python standard library"
    else:
        root = Path(path).expanduser()
        if not root.exists():
            raise bad_input("no such file or folder", field="data.path", value=repr(path))
        files = (root,) if root.is_file() else tuple(_walk(root, frozenset()))
        label = str(root)
    files = tuple(file for file in files if file.suffix in _JSON_LINES or not _is_binary(file))
    if not files:
        raise bad_input("holds no text files", field="data.path", value=repr(path or str(root)),
                        legal="UTF-8 text, or .jsonl with a document a line under \"text\"")  # fmt: skip
    return Corpus(label, root, files)


def fingerprint(corpus: Corpus) -> str:
    """Changes whenever a file of the corpus is added, removed, resized or written to."""
    digest = hashlib.sha256()
    for file in corpus.files:
        stat = file.stat()
        name = file.relative_to(corpus.root).as_posix()
        digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def pieces(corpus: Corpus, limit_bytes: int | None = None) -> Iterator[Piece]:
    """All documents in order, cut at line ends into pieces; at most `limit_bytes` of UTF-8 text (the last document is
    cut short). Bytes that are not UTF-8 read as U+FFFD. Raises InputError naming file and line for damaged JSON lines.
    """
    left = limit_bytes
    for file in corpus.files:
        for piece in _of_file(file):
            if left is not None:
                size = len(piece.text.encode("utf-8", "replace"))
                if size >= left:
                    kept = piece.text.encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
                    yield Piece(kept, ends_document=True)
                    return
                left -= size
            yield piece


def _walk(root: Path, skipped: frozenset[str]) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in skipped and not n.startswith((".", "__pycache__", "config-")))
        found = (Path(folder, file) for file in sorted(files) if not file.startswith("."))
        yield from (file for file in found if not _never_ends(file))


def _never_ends(file: Path) -> bool:
    """Is it a pipe, a socket or a device, which cannot be read twice, or at all?"""
    return file.exists() and not file.is_file()


def _is_binary(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return b"\0" in stream.read(4096)
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", field="data.path", file=str(file)) from error


def _of_file(file: Path) -> Iterator[Piece]:
    with file.open(encoding="utf-8", errors="replace") as stream:
        if file.suffix in _JSON_LINES:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield Piece(_text_of(line, f"{file}: line {number}"), ends_document=True)
            return
        held = stream.readlines(PIECE_BYTES)
        while held:
            following = stream.readlines(PIECE_BYTES)
            yield Piece("".join(held), ends_document=not following)
            held = following


def _text_of(line: str, place: str) -> str:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise bad_input("is not JSON", file=place) from error
    text = data.get("text") if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise bad_input('must be an object with the document under "text"', file=place)
    return text
