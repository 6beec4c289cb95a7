"""A corpus as documents: cut into shares that can be read apart, each of which yields its text in order."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.basics.errors import InputError, bad_input
from meshwright.trainer.corpus import Corpus
from meshwright.trainer.data_arrow import documents_of, parts_of

PIECE_BYTES = 2**20  # long documents travel in pieces of about this size
_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # the byte order mark at the beginning of some files


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one document."""

    text: str
    ends_document: bool


@dataclass(frozen=True, slots=True)
class Share:
    """Lines of a file that begin in its bytes [first, last), or a table's row groups or record batches [first, last).

    `size` is about how many bytes of the file it stands for; `ends` that nothing of the file comes after it.
    """

    file: Path
    first: int
    last: int
    size: int
    ends: bool


def shares(corpus: Corpus) -> tuple[Share, ...]:
    """All of a corpus in order, cut without regard to who reads it. Raises InputError for damaged tables, and when a
    table lacks the column `corpus.field`."""
    found: list[Share] = []
    for file in corpus.files:
        size = file.stat().st_size
        if corpus.kind in ("Parquet", "Arrow"):
            parts = parts_of(file, corpus.kind, corpus.field)
            step = max(1, parts * PIECE_BYTES // max(1, size))
        else:
            parts, step = size, PIECE_BYTES
        for first in range(0, parts, step):
            last = min(parts, first + step)
            found.append(Share(file, first, last, size * (last - first) // parts, last == parts))
    return tuple(found)


def read(corpus: Corpus, share: Share) -> Iterator[Piece]:
    """The text of a share. Raises InputError naming file and line (or row, or byte) for what cannot be read."""
    if corpus.kind in ("Parquet", "Arrow"):
        for text in documents_of(share.file, corpus.kind, corpus.field, share.first, share.last):
            yield Piece(text, ends_document=True)
        return
    begin, data = _lines(share)
    if corpus.kind == "JSON lines":
        for index, line in enumerate(data.split(b"\n")):
            if line.strip():
                yield Piece(_text_of(line, corpus.field, share.file, begin, index), ends_document=True)
        return
    try:
        text = data.decode("utf-8").removeprefix(_MARK if begin == 0 else "")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8 (byte {data[error.start]:#04x} at offset {begin + error.start})"
        legal = f"convert it, if it is Latin-1: iconv -f latin1 -t utf-8 {share.file.name}"
        raise bad_input(rule, file=str(share.file), legal=legal) from error
    if text or share.ends:
        yield Piece(text.replace("\r\n", "\n").replace("\r", "\n"), share.ends)


def pieces(corpus: Corpus, limit_bytes: int | None = None) -> Iterator[Piece]:
    """All documents in order, cut at line ends into pieces; at most `limit_bytes` of UTF-8 text (the last document is
    cut short). Raises as `read`."""
    left = limit_bytes
    for share in shares(corpus):
        for piece in read(corpus, share):
            if left is not None:
                size = len(piece.text.encode("utf-8", "replace"))
                if size >= left:
                    kept = piece.text.encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
                    yield Piece(kept, ends_document=True)
                    return
                left -= size
            yield piece


def _lines(share: Share) -> tuple[int, bytes]:
    """Where the first line that begins in the share begins, and all such lines whole."""
    try:
        with share.file.open("rb") as stream:
            if share.first:
                stream.seek(share.first - 1)
                stream.readline()
            begin = stream.tell()
            data = stream.read(max(0, share.last - begin))
            if data and not data.endswith(b"\n"):
                data += stream.readline()
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", field="data.path", file=str(share.file)) from error
    return begin, data


def _text_of(line: bytes, field: str, file: Path, begin: int, index: int) -> str:
    try:
        data = json.loads(line.decode("utf-8").removeprefix(_MARK))
    except UnicodeDecodeError as error:
        raise _at_line(file, begin, index, f"is not UTF-8 ({line[error.start : error.start + 1]!r})") from error
    except ValueError as error:
        raise _at_line(file, begin, index, "is not JSON") from error
    text = data.get(field) if isinstance(data, dict) else None
    if not isinstance(text, str):
        keys = f"the keys are {', '.join(map(str, data))}" if isinstance(data, dict) else ""
        raise _at_line(file, begin, index, f'must be an object with the document under "{field}"', keys)
    return text


def _at_line(file: Path, begin: int, index: int, rule: str, legal: str = "") -> InputError:
    with file.open("rb") as stream:
        before = stream.read(begin).count(b"\n")
    return bad_input(rule, file=f"{file}: line {before + index + 1}", legal=legal)
