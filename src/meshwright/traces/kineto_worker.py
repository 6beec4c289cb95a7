"""Files read side by side: processes that leave what they kept in files.

A plain program (`python -m meshwright.traces.kineto_worker TRACE RESULT ...`), no forked or spawned copy of the caller:
it needs nothing of the caller's main module and holds nothing of its memory.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from meshwright.basics.errors import Complaint, InputError
from meshwright.traces.kineto_part import Part, load_part, read_part, save_part

_WORTH = 48 << 20  # bytes of files below which starting processes costs more than it saves
_SLOW = 16 << 20  # bytes of a file that takes long enough to be told about

Said = Callable[[str], None]


def read_parts(files: Sequence[Path], said: Said, workers: int | None = None) -> Iterator[tuple[Path, Part]]:
    """The parts of trace files in their order; `workers` processes (one a core) where the files are large.

    Raises InputError, with the complaints of all files that could not be read.
    """
    count = min(len(files), workers or os.cpu_count() or 1)
    total = sum(_size(file) for file in files)
    if count < 2 or total < _WORTH:
        yield from _here(files, said)
        return
    yield from _beside(files, said, count)


def _here(files: Sequence[Path], said: Said) -> Iterator[tuple[Path, Part]]:
    enabled = gc.isenabled()
    gc.disable()  # millions of small objects that hold no cycles
    complaints: list[Complaint] = []
    try:
        for number, file in enumerate(files, 1):
            try:
                part = read_part(file)
            except InputError as error:
                complaints += error.complaints
                continue
            if _size(file) >= _SLOW:
                said(f"read {number} of {len(files)} traces: {file.name}, {part.seen:,} events")
            yield file, part
    finally:
        if enabled:
            gc.enable()
    if complaints:
        raise InputError(tuple(complaints))


def _beside(files: Sequence[Path], said: Said, count: int) -> Iterator[tuple[Path, Part]]:
    with tempfile.TemporaryDirectory(prefix="meshwright-traces-") as room:
        results = {file: Path(room) / f"{number}.npz" for number, file in enumerate(files)}
        running = [_start(share, results) for share in _shares(files, count)]
        try:
            ended = 0
            while any(process.poll() is None for process in running):
                time.sleep(0.02)
                if (done := sum(result.exists() for result in results.values())) > ended:
                    ended = done
                    said(f"read {ended} of {len(files)} traces")
        finally:
            for process in running:
                process.kill()
                process.wait()
        complaints: list[Complaint] = []
        for file, result in results.items():
            complaints += _complaints(file, result)
        if complaints:
            raise InputError(tuple(complaints))
        for file, result in results.items():
            part = load_part(result)
            assert part is not None
            result.unlink()
            yield file, part


def _shares(files: Sequence[Path], count: int) -> list[list[Path]]:
    """The files for each process, about equally many bytes each."""
    shares: list[list[Path]] = [[] for _ in range(count)]
    loads = [0] * count
    for file in sorted(files, key=_size, reverse=True):
        least = loads.index(min(loads))
        shares[least].append(file)
        loads[least] += _size(file) + 1
    return [share for share in shares if share]


def _start(share: Sequence[Path], results: Mapping[Path, Path]) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    pairs = [str(path) for file in share for path in (file.absolute(), results[file])]
    command = [sys.executable, "-m", "meshwright.traces.kineto_worker", *pairs]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )  # fmt: skip


def _complaints(file: Path, result: Path) -> list[Complaint]:
    """What was wrong with a file, where there is no result."""
    if result.exists():
        return []
    try:
        return [Complaint(*fields) for fields in json.loads(result.with_suffix(".json").read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        rule = "could not be read: the process that read it was ended from outside (out of memory?)"
        return [Complaint("", "", rule, "", str(file))]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def main(pairs: Sequence[str]) -> None:
    """Read traces into files: a trace, a result, and so on. Complaints are left beside a result, as JSON."""
    gc.disable()
    for trace, result in zip(pairs[::2], pairs[1::2], strict=True):
        try:
            save_part(read_part(Path(trace)), Path(result))
        except InputError as error:
            rows = [[c.field, c.value, c.rule, c.legal, c.file] for c in error.complaints]
            Path(result).with_suffix(".json").write_text(json.dumps(rows), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
