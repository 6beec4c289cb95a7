"""Text into a token folder, once per corpus and tokenizer: it is kept in the cache, and appears there whole or not."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import MIB, bytes_text, count_text
from meshwright.files.setup import DataSource
from meshwright.files.strict_json import dump, load_as
from meshwright.trainer.corpus import Corpus, fingerprint, open_corpus
from meshwright.trainer.data import DOCUMENTS, HEADER, TOKENIZER, TOKENS, Header, used_of
from meshwright.trainer.data_indexed import Indexed, highest_token, open_indexed
from meshwright.trainer.data_readers import pieces
from meshwright.trainer.data_tokenise import Spelling, tokenise
from meshwright.trainer.tokenizer import END_OF_TEXT, end_of_text, load_tokenizer, require_tokenizers, train_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAYOUT_VERSION = 3  # part of the cache key: raise it when the bytes of a token folder change
DEFAULT_LIMIT_MIB = 8.0  # of the standard library's sources, when the job sets no limit
SAMPLE_BYTES = 4 * MIB  # text the tokenizer is trained on
_ABANDONED_S = 7 * 24 * 3600.0  # half-made folders are removed after a week


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a token folder is made of."""

    corpus: Corpus
    limit: int | None  # bytes of text
    size: int  # entries of the tokenizer that is trained, or of the model's vocabulary
    tokenizer: Path | None  # None: trained
    end: str | None


def cache_folder() -> Path:
    """MESHWRIGHT_CACHE, else `meshwright` in XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get("MESHWRIGHT_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "meshwright"


def prepare(source: DataSource, vocab: int, progress: Callable[[str], None], config: str | None = None) -> Path:
    """The token folder of `source` for a model of `vocab` tokens read from the config.json `config`: from the cache
    when nothing changed, else made now and moved into place whole (when several make it at once, the first one's).

    The tokenizer is the one that the job names, else the one beside `config` unless the job asks for a size, else one
    of at most `source.vocab` or `vocab` entries learned from the text. Without a limit in the job, the user's own text
    is used whole, the standard library's up to `DEFAULT_LIMIT_MIB`.

    Raises InputError for a corpus that is missing, empty or damaged, for token ids beyond the vocabulary, for a missing
    package, and for a vocabulary that is too small.
    """
    corpus = open_corpus(source.path, source.field)
    recipe = _recipe(source, corpus, vocab, config)
    version = "" if corpus.kind == "tokens" else require_tokenizers()
    known = hashlib.sha256(recipe.tokenizer.read_bytes()).hexdigest() if recipe.tokenizer else recipe.size
    end = _end_settings(recipe)
    text = json.dumps([LAYOUT_VERSION, version, fingerprint(corpus), known, end, recipe.limit])
    folder = cache_folder() / "tokens" / hashlib.sha256(text.encode()).hexdigest()[:20]
    if not (folder / HEADER).exists():
        if corpus.left_out:
            progress(f"data: {len(corpus.left_out)} binary files are left out ({corpus.left_out[0].name}, ...)")
        try:
            _make(folder, recipe, progress)
        except OSError as error:
            raise bad_input(f"cannot be written ({error.strerror})", file=str(folder),
                            legal="set MESHWRIGHT_CACHE to a folder that can") from error  # fmt: skip
    header = load_as(folder / HEADER, Header)
    cut = recipe.limit is not None and header.text_bytes >= recipe.limit
    limited = f", limited to {source.limit_mib or DEFAULT_LIMIT_MIB:g} MiB" if cut else ""
    progress(f"data: {count_text(header.count)} tokens of {header.vocab} kinds from {corpus.label}{limited}")
    if used_of(header) > vocab:
        raise bad_input(f"has token ids up to {used_of(header) - 1}, the model's vocabulary is {vocab}",
                        field="data.tokenizer" if recipe.tokenizer else "data.path", value=repr(corpus.label),
                        legal=f"model.vocab of at least {used_of(header)}, or other data")  # fmt: skip
    return folder


def _recipe(source: DataSource, corpus: Corpus, vocab: int, config: str | None) -> _Recipe:
    """Raises InputError for settings that contradict each other or the corpus."""
    limit_mib = source.limit_mib or (DEFAULT_LIMIT_MIB if source.path is None else None)
    limit = None if limit_mib is None else round(limit_mib * MIB)
    if corpus.kind == "tokens":
        for field in ("limit_mib", "tokenizer", "vocab", "end_of_text"):
            if getattr(source, field) is not None:
                raise bad_input("does not apply: the data is tokenised already", field=f"data.{field}",
                                value=getattr(source, field), legal="leave it out")  # fmt: skip
        return _Recipe(corpus, None, vocab, None, None)
    if source.vocab is not None and source.tokenizer is not None:
        raise bad_input("sizes a tokenizer to train, but data.tokenizer names one", field="data.vocab",
                        value=source.vocab, legal="one of the two")  # fmt: skip
    size = source.vocab or vocab
    if size > vocab:
        raise bad_input(f"is more than the model's vocabulary of {vocab}", field="data.vocab", value=size,
                        legal=f"at most {vocab}")  # fmt: skip
    named = None if source.tokenizer is None else Path(source.tokenizer).expanduser()
    if named is not None:
        named = named / TOKENIZER if named.is_dir() else named
        if not named.exists():
            raise bad_input("no such file", field="data.tokenizer", value=repr(str(named)))
    beside = None
    if config is not None and source.vocab is None:
        beside = (Path(config) if Path(config).is_dir() else Path(config).parent) / TOKENIZER
    tokenizer = named or (beside if beside is not None and beside.exists() else None)
    if tokenizer is None and source.end_of_text is not None:
        raise bad_input("needs a tokenizer that has it", field="data.end_of_text", value=repr(source.end_of_text),
                        legal="set data.tokenizer")  # fmt: skip
    return _Recipe(corpus, limit, size, tokenizer, source.end_of_text)


def _end_settings(recipe: _Recipe) -> int | None:
    """The id of the end-of-text token; None when the tokenizer is not there yet, or nothing is to be tokenised."""
    if recipe.tokenizer is None:
        return None
    return end_of_text(load_tokenizer(recipe.tokenizer), recipe.tokenizer, recipe.end)


def _make(folder: Path, recipe: _Recipe, progress: Callable[[str], None]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        corpus = recipe.corpus
        progress(f"data: reading {corpus.label} ({len(corpus.files)} files)")
        header = _index(work, corpus, progress) if corpus.kind == "tokens" else _write_text(work, recipe, progress)
        dump(header, work / HEADER)
        try:
            work.rename(folder)
        except OSError:
            if not (folder / HEADER).exists():  # else another run made the same one meanwhile
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_text(work: Path, recipe: _Recipe, progress: Callable[[str], None]) -> Header:
    corpus = recipe.corpus
    if recipe.tokenizer is not None:
        tokenizer: Tokenizer = load_tokenizer(recipe.tokenizer)
        end = end_of_text(tokenizer, recipe.tokenizer, recipe.end)
        shutil.copyfile(recipe.tokenizer, work / TOKENIZER)
    else:
        sample = min(SAMPLE_BYTES, recipe.limit or SAMPLE_BYTES)
        progress(f"data: learning {recipe.size} tokens from the first {bytes_text(sample)}")
        tokenizer = train_tokenizer((piece.text for piece in pieces(corpus, sample)), recipe.size)
        tokenizer.save(str(work / TOKENIZER))
        end = end_of_text(tokenizer, work / TOKENIZER, END_OF_TEXT)
    made = tokenise(work, corpus, Spelling(tokenizer, work / TOKENIZER, end), recipe.limit, progress)
    return Header(
        made.dtype,
        made.count,
        made.kinds,
        made.documents,
        made.text_bytes,
        corpus.label,
        used=made.used,
        digest=made.digest,
    )


def _index(work: Path, corpus: Corpus, progress: Callable[[str], None]) -> Header:
    """Tokens that exist already: those of one file stay where they are, those of several are joined."""
    parts = [open_indexed(index) for index in corpus.files]
    digest = hashlib.sha256()
    kinds = 1 + max(highest_token(part, progress, digest.update) for part in parts)
    bounds, count = [np.zeros(1, np.int64)], 0
    for part in parts:
        bounds.append(part.documents[1:] + count)
        count += len(part.tokens)
    documents = np.concatenate(bounds)
    documents.tofile(work / DOCUMENTS)
    digest.update(documents.tobytes())
    if len(parts) == 1:
        file, dtype = str(parts[0].file.resolve()), parts[0].tokens.dtype.name
    else:
        file, dtype = None, np.dtype(np.uint16 if kinds <= 2**16 else np.uint32).name
        _join(parts, work / TOKENS, dtype, progress)
    return Header(dtype, count, kinds, len(documents) - 1, 0, corpus.label, file, digest=digest.hexdigest())


def _join(parts: list[Indexed], file: Path, dtype: str, progress: Callable[[str], None]) -> None:
    with file.open("wb") as stream:
        for part in parts:
            for begin in range(0, len(part.tokens), 2**22):
                stream.write(part.tokens[begin : begin + 2**22].astype(dtype).tobytes())
            progress(f"data: joined {part.file.name}")


def _sweep(folder: Path) -> None:
    """Remove what interrupted runs left half made long ago."""
    for left in folder.glob(".making-*"):
        if time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
