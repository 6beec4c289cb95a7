"""Packed tokens on disk, and which of them a step trains on.

A token folder holds `tokens.bin` (documents joined by end-of-text tokens), `tokenizer.json` and `header.json`. It is
prepared once per corpus, vocabulary and limit, and kept in the cache.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import MIB, bytes_text, count_text
from meshwright.files.setup import DataSource
from meshwright.files.strict_json import dump, load_as
from meshwright.trainer.corpus import Corpus, Piece, fingerprint, open_corpus, pieces
from meshwright.trainer.tokenizer import END_OF_TEXT, encode, require_tokenizers, train_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAYOUT_VERSION = 1  # part of the cache key: raise it when the bytes of a token folder change
DEFAULT_LIMIT_MIB = 8.0  # of the standard library's sources, when the job sets no limit
SAMPLE_BYTES = 4 * MIB  # text the tokenizer is trained on
_BATCH_BYTES = MIB


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Packed tokens [n], memory-mapped, every value below `vocab` (the tokenizer's true size)."""

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    vocab: int


@dataclass(frozen=True, slots=True)
class _Header:
    dtype: str
    count: int
    vocab: int
    documents: int
    text_bytes: int
    corpus: str


def cache_folder() -> Path:
    """MESHWRIGHT_CACHE, else `meshwright` in XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get("MESHWRIGHT_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright"


def prepare(source: DataSource, vocab: int, progress: Callable[[str], None]) -> Path:
    """The token folder of `source` for a tokenizer of at most `vocab` entries (`source.vocab` when that is set): from
    the cache when nothing changed, else made now and moved into place whole.

    Without a limit in the job, the user's own text is used whole, the standard library's up to `DEFAULT_LIMIT_MIB`.
    Raises InputError for a missing or empty corpus, a missing `tokenizers`, or a vocabulary that is too small.
    """
    version = require_tokenizers()
    corpus = open_corpus(source.path)
    limit_mib = source.limit_mib or (DEFAULT_LIMIT_MIB if source.path is None else None)
    limit = None if limit_mib is None else round(limit_mib * MIB)
    size = source.vocab or vocab
    if size > vocab:
        raise bad_input(f"is more than the model's vocabulary of {vocab}", field="data.vocab", value=size,
                        legal=f"at most {vocab}")  # fmt: skip
    key = hashlib.sha256(json.dumps([LAYOUT_VERSION, version, fingerprint(corpus), size, limit]).encode()).hexdigest()
    folder = cache_folder() / "tokens" / key[:20]
    if not (folder / "header.json").exists():
        try:
            _make(folder, corpus, size, limit, progress)
        except OSError as error:
            raise bad_input(f"cannot be written ({error.strerror})", file=str(folder),
                            legal="set MESHWRIGHT_CACHE to a folder that can") from error  # fmt: skip
    header = load_as(folder / "header.json", _Header)
    limited = f", limited to {limit_mib:g} MiB" if limit is not None and header.text_bytes >= limit else ""
    progress(f"data: {count_text(header.count)} tokens of {header.vocab} kinds from {corpus.label}{limited}")
    return folder


def open_tokens(path: Path) -> TokenFile:
    """The packed tokens of a token folder. Raises InputError when it is damaged or none."""
    header = load_as(path / "header.json", _Header)
    file = path / "tokens.bin"
    if header.dtype not in ("uint16", "uint32"):
        raise bad_input("unknown value", field="dtype", value=header.dtype, file=str(path / "header.json"))
    dtype = np.dtype(header.dtype)
    if not file.exists() or file.stat().st_size != header.count * dtype.itemsize:
        raise bad_input(f"must hold {header.count} tokens of {dtype.itemsize} bytes", file=str(file),
                        legal="delete the folder; it is made again")  # fmt: skip
    tokens = np.memmap(file, dtype=dtype, mode="r") if header.count else np.empty(0, dtype)
    return TokenFile(tokens, header.vocab)


def window_count(token_file: TokenFile, seq_len: int) -> int:
    """Windows of `seq_len` inputs; consecutive ones share a token, so that each token is a target once an epoch."""
    return max(0, (len(token_file.tokens) - 1) // seq_len)


def check_enough(token_file: TokenFile, global_batch: int, seq_len: int) -> None:
    """Raise InputError unless one step can be filled without using a window twice."""
    count, need = window_count(token_file, seq_len), global_batch * seq_len + 1
    if count < global_batch:
        raise bad_input(
            f"holds {len(token_file.tokens)} tokens, {count} windows of {seq_len}; a step of {global_batch} samples "
            f"needs {need}", field="data", legal="more text, a shorter batch.seq_len or a smaller batch.global",
        )  # fmt: skip


def samples(token_file: TokenFile, step: int, global_batch: int, seq_len: int, seed: int) -> NDArray[np.int64]:
    """Token ids [global_batch, seq_len + 1] of one step (counted from 0): inputs are `[:, :-1]`, targets `[:, 1:]`.

    Windows come in an order that depends on the seed and the epoch alone, each once an epoch, so any layout sees the
    same global batch and takes its rows. Raises InputError when the text is too short for one batch.
    """
    check_enough(token_file, global_batch, seq_len)
    count = window_count(token_file, seq_len)
    positions = np.arange(step * global_batch, (step + 1) * global_batch)
    windows = np.array([shuffled(int(p) % count, count, (seed, int(p) // count)) for p in positions])
    rows = windows[:, None] * seq_len + np.arange(seq_len + 1)
    return token_file.tokens[rows].astype(np.int64)


def shuffled(index: int, count: int, key: tuple[int, int]) -> int:
    """Where `index` goes in a permutation of `range(count)` chosen by `key`.

    A Feistel network with cycle walking (Black and Rogaway 2002): no table, so a rank needs neither memory nor time
    for the order of a billion windows, and the order outlives versions of NumPy.
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(4):
            digest = hashlib.blake2b(repr((key, turn, right)).encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & mask)
        index = left << half | right
        if index < count:
            return index


def _make(folder: Path, corpus: Corpus, vocab: int, limit: int | None, progress: Callable[[str], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        progress(f"data: reading {corpus.label} ({len(corpus.files)} files)")
        sample = min(SAMPLE_BYTES, limit or SAMPLE_BYTES)
        progress(f"data: learning {vocab} tokens from the first {bytes_text(sample)}")
        tokenizer = train_tokenizer((piece.text for piece in pieces(corpus, sample)), vocab)
        tokenizer.save(str(work / "tokenizer.json"))
        header = _pack(work / "tokens.bin", corpus, tokenizer, limit, progress)
        dump(header, work / "header.json")
        try:
            work.rename(folder)
        except OSError:
            if not (folder / "header.json").exists():  # else another run made the same one meanwhile
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pack(
    file: Path, corpus: Corpus, tokenizer: "Tokenizer", limit: int | None, progress: Callable[[str], None]
) -> _Header:
    vocab = tokenizer.get_vocab_size()
    dtype = np.dtype(np.uint16 if vocab <= 2**16 else np.uint32)
    end = tokenizer.token_to_id(END_OF_TEXT)
    count = documents = text_bytes = 0
    with file.open("wb") as stream:
        for batch in _batches(pieces(corpus, limit)):
            ids = encode(tokenizer, [piece.text for piece in batch])
            for piece, tokens in zip(batch, ids, strict=True):
                packed = np.array([*tokens, end] if piece.ends_document else tokens, dtype)
                stream.write(packed.tobytes())
                count += len(packed)
                documents += piece.ends_document
                text_bytes += len(piece.text.encode("utf-8", "replace"))
            progress(f"data: {bytes_text(text_bytes)} of text, {count_text(count)} tokens")
    return _Header(str(dtype), count, vocab, documents, text_bytes, corpus.label)


def _batches(stream: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in stream:
        batch.append(piece)
        size += len(piece.text)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
