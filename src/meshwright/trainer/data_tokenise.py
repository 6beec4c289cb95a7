"""A corpus into tokens, by several processes when it is large; whoever does it, the tokens are the same.

The corpus is cut into blocks of consecutive shares. Block 7 becomes `part-00000007.bin` (tokens), which is joined to
what came before as soon as it is there, so that the disk never holds the tokens twice.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import Complaint, InputError, RunFailed
from meshwright.basics.quantities import MIB, bytes_text, count_text
from meshwright.cluster.machine import usable_cores
from meshwright.files.strict_json import dump, from_json
from meshwright.trainer.corpus import Corpus
from meshwright.trainer.data import DOCUMENTS, TOKENS
from meshwright.trainer.data_readers import Piece, Share, pieces, read, shares
from meshwright.trainer.tokenizer import encode, token_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BLOCK_BYTES = 4 * MIB
MOST_PROCESSES = 32
JOB, FAILED = "tokenise.json", "failed.json"
_BATCH_BYTES = MIB
_LOOK_S, _SAY_S = 0.05, 2.0


@dataclass(frozen=True, slots=True)
class Spelling:
    """A tokenizer, the file it is in, and the token that ends a document."""

    tokenizer: "Tokenizer"
    file: Path
    end: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Two bytes a token when they suffice."""
        return np.dtype(np.uint16 if token_kinds(self.tokenizer) <= 2**16 else np.uint32)


@dataclass(frozen=True, slots=True)
class Job:
    """What the processes share, on their disk."""

    corpus: Corpus
    blocks: tuple[tuple[Share, ...], ...]
    end: int
    parent: int


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a corpus."""

    dtype: str
    count: int
    kinds: int
    documents: int
    text_bytes: int
    used: int  # one more than the largest token
    digest: str


@dataclass(frozen=True, slots=True)
class Packed:
    """Tokens of a stretch of text; `ends`: places behind the end of each document in it."""

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    text_bytes: int


def tokenise(
    work: Path, corpus: Corpus, spelling: Spelling, limit: int | None, progress: Callable[[str], None]
) -> Made:
    """Write `tokens.bin` and `documents.bin` of a corpus, or of its first `limit` bytes of text, into `work`.

    Raises InputError for text that cannot be read, RunFailed when a process ends without saying why.
    """
    blocks = () if limit is not None else _blocks(shares(corpus))
    processes = min(usable_cores(), len(blocks) // 2, MOST_PROCESSES)
    if processes < 2:
        return _join(work, corpus, pack(pieces(corpus, limit), spelling), spelling, None, progress)
    progress(f"data: tokenising in {processes} processes")
    dump(Job(corpus, blocks, spelling.end, os.getpid()), work / JOB)
    whole = sum(share.size for block in blocks for share in block)
    return _join(work, corpus, _parts(work, len(blocks), processes, spelling.dtype), spelling, whole, progress)


def pack(stream: Iterable[Piece], spelling: Spelling) -> Iterator[Packed]:
    """Text as tokens, with the end-of-text token after each document, about a MiB of text at a time."""
    for batch in _batches(stream):
        ids = encode(spelling.tokenizer, [piece.text for piece in batch])
        joined = [[*own, spelling.end] if piece.ends_document else own for piece, own in zip(batch, ids, strict=True)]
        lengths = np.cumsum([len(own) for own in joined])
        ends = lengths[np.array([piece.ends_document for piece in batch], bool)].astype(np.int64)
        size = sum(len(piece.text.encode("utf-8", "replace")) for piece in batch)
        yield Packed(np.concatenate([np.array(own, spelling.dtype) for own in joined]), ends, size)


def work_on(folder: Path, index: int, processes: int) -> None:
    """Be one of the processes: tokenise every `processes`-th block from `index` on."""
    from meshwright.files.strict_json import load_as
    from meshwright.trainer.data import TOKENIZER
    from meshwright.trainer.tokenizer import load_tokenizer

    job = load_as(folder / JOB, Job)
    spelling = Spelling(load_tokenizer(folder / TOKENIZER), folder / TOKENIZER, job.end)
    for number in range(index, len(job.blocks), processes):
        if os.getppid() != job.parent:  # it was killed: nobody waits for this
            return
        stream = (piece for share in job.blocks[number] for piece in read(job.corpus, share))
        made = list(pack(stream, spelling))
        tokens = np.concatenate([part.tokens for part in made] or [np.empty(0, spelling.dtype)])
        before = np.cumsum([0, *(len(part.tokens) for part in made)])
        ends = [part.ends + begin for part, begin in zip(made, before, strict=False)]
        size = sum(part.text_bytes for part in made)
        partial = _part(folder, number).with_suffix(".partial")
        with partial.open("wb") as file:
            np.array([size, sum(map(len, ends)), *(place for part in ends for place in part)], np.int64).tofile(file)
            tokens.tofile(file)
        partial.replace(_part(folder, number))


def _parts(work: Path, blocks: int, processes: int, dtype: np.dtype[Any]) -> Iterator[Packed]:
    """Blocks in order, made by processes of which none outlives this."""
    variables = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    with (work / "errors.txt").open("wb") as errors:
        command = [sys.executable, "-m", "meshwright.trainer.data_tokenise", str(work)]
        running = [_start([*command, str(index), str(processes)], variables, errors) for index in range(processes)]
        try:
            for number in range(blocks):
                file = _part(work, number)
                while not file.exists():
                    _raise_failure(work, running)
                    time.sleep(_LOOK_S)
                yield _read_part(file, dtype)
                file.unlink()
            for process in running:
                process.wait()
        finally:
            for process in running:
                process.kill()
                process.wait()


def _start(command: Sequence[str], variables: dict[str, str], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)


def _raise_failure(work: Path, running: Sequence["subprocess.Popen[bytes]"]) -> None:
    said = [json.loads(file.read_text()) for file in sorted(work.glob(f"*.{FAILED}"))]
    if said:
        raise InputError(tuple(from_json(entry, Complaint) for entries in said for entry in entries))
    ended = next((process.returncode for process in running if process.poll() not in (None, 0)), None)
    if ended is not None:
        lines = (work / "errors.txt").read_text(errors="replace").strip().splitlines()
        raise RunFailed(f"a process that tokenised ended with {ended}: {lines[-1] if lines else 'it said nothing'}")


def _read_part(file: Path, dtype: np.dtype[Any]) -> Packed:
    content = file.read_bytes()
    size, documents = np.frombuffer(content, np.int64, 2)
    ends = np.frombuffer(content, np.int64, int(documents), 16)
    return Packed(np.frombuffer(content, dtype, -1, 16 + ends.nbytes), ends, int(size))


def _join(
    work: Path, corpus: Corpus, parts: Iterable[Packed], spelling: Spelling, whole: int | None,
    progress: Callable[[str], None],
) -> Made:  # fmt: skip
    """Write the parts one behind the other. `whole`: bytes of all files, when the progress is to be said in time."""
    count = documents = size = used = 0
    sums = hashlib.sha256(), hashlib.sha256()
    said = time.monotonic()
    with (work / TOKENS).open("wb") as tokens, (work / DOCUMENTS).open("wb") as bounds:
        bounds.write(np.zeros(1, np.int64).tobytes())
        for part in parts:
            ends = part.ends + count
            for file, digest, values in ((tokens, sums[0], part.tokens), (bounds, sums[1], ends)):
                file.write(values.tobytes())
                digest.update(values.tobytes())
            used = max(used, 1 + int(part.tokens.max(initial=0)))
            count, documents, size = count + len(part.tokens), documents + len(part.ends), size + part.text_bytes
            if whole is None or time.monotonic() - said > _SAY_S:
                said = time.monotonic()
                of = "" if whole is None else f" of files of {bytes_text(whole)}"
                progress(f"data: {bytes_text(size)} of text{of}, {count_text(count)} tokens")
    return Made(str(spelling.dtype), count, token_kinds(spelling.tokenizer), documents, size, used, joint(sums))


def joint(sums: Iterable["hashlib._Hash"]) -> str:
    """One digest of several."""
    return hashlib.sha256(b"".join(part.digest() for part in sums)).hexdigest()


def _blocks(found: Sequence[Share]) -> tuple[tuple[Share, ...], ...]:
    blocks: list[list[Share]] = [[]]
    size = 0
    for share in found:
        if blocks[-1] and size + share.size > BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(share)
        size += share.size
    return tuple(tuple(block) for block in blocks if block)


def _part(work: Path, number: int) -> Path:
    return work / f"part-{number:08}.bin"


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


def main(folder: Path, index: int, processes: int) -> int:
    """`work_on`; what is wrong with the text is left for the parent to read."""
    try:
        work_on(folder, index, processes)
    except InputError as error:
        told = [{name: getattr(c, name) for name in Complaint.__slots__} for c in error.complaints]
        partial = folder / f"{index}.partial"
        partial.write_text(json.dumps(told))
        partial.replace(folder / f"{index}.{FAILED}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
