"""Token folders: packed tokens on disk, and where each document begins.

A folder holds `header.json`, `tokens.bin` (documents one after the other, unless the header names a file elsewhere),
`documents.bin` (int64: where each document begins, and where the last ends) and, for text, `tokenizer.json`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.files.strict_json import load_as

HEADER, TOKENS, DOCUMENTS, TOKENIZER = "header.json", "tokens.bin", "documents.bin", "tokenizer.json"
_TYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Packed tokens [n], memory-mapped, every value below `vocab`: what a model must know to read them.

    `documents` [documents + 1]: where each begins, and the end of the last; None: not known.
    """

    tokens: NDArray[Any]
    vocab: int
    documents: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """`header.json`. `vocab`: the tokenizer's true size; `used`: one more than the largest token that occurs.

    `tokens`: the file of the tokens when it is not the folder's own; `text_bytes` 0: not text.
    """

    dtype: str
    count: int
    vocab: int
    documents: int
    text_bytes: int
    corpus: str
    tokens: str | None = None
    used: int | None = None
    digest: str = ""  # of the tokens and where documents begin; the same bytes have the same


def open_tokens(path: Path) -> TokenFile:
    """The packed tokens of a token folder. Raises InputError when it is damaged or none."""
    header = load_as(path / HEADER, Header)
    if header.dtype not in _TYPES:
        raise bad_input("unknown value", field="dtype", value=header.dtype, file=str(path / HEADER))
    dtype = np.dtype(header.dtype)
    file = path / TOKENS if header.tokens is None else Path(header.tokens)
    cure = "delete the folder; it is made again" if header.tokens is None else f"it has changed since {path} was made"
    tokens = _mapped(file, dtype, header.count, f"{header.count} tokens", cure)
    bounds = path / DOCUMENTS
    if not bounds.exists():
        return TokenFile(tokens, used_of(header))
    places = _mapped(bounds, np.dtype(np.int64), header.documents + 1, f"{header.documents + 1} places", cure)
    return TokenFile(tokens, used_of(header), places)


def used_of(header: Header) -> int:
    """Tokens that a model must know: a tokenizer may have entries that no text of the corpus needs."""
    return header.vocab if header.used is None else header.used


def _mapped(file: Path, dtype: np.dtype[Any], count: int, what: str, cure: str) -> NDArray[Any]:
    if not file.exists() or file.stat().st_size != count * dtype.itemsize:
        raise bad_input(f"must hold {what} of {dtype.itemsize} bytes", file=str(file), legal=cure)
    return np.memmap(file, dtype=dtype, mode="r") if count else np.empty(0, dtype)
