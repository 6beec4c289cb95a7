"""A pool of ranks that does one job after the other: Python and PyTorch start once, not for every layout.

Each job has a process group of its own, of as many of the ranks as it needs. A job that fails, or kills a rank, ends
all ranks; the next job starts new ones. Imports no torch.
"""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from meshwright.basics.errors import RunFailed
from meshwright.trainer.failure import is_echo
from meshwright.trainer.ranks import rank_environment

GRACE_S = 1.0  # in which the others may say why, too: the first to end need not be the cause
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """A function, as `module:name`, that `world` ranks call with `arguments`; picklable, as what it returns is."""

    function: str
    arguments: tuple[Any, ...]
    world: int
    timeout_s: float  # of every wait for a peer


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank returned, or why it did not."""

    value: Any = None
    error: str | None = None


def job_file(folder: Path, number: int) -> Path:
    """Where a job is left for the ranks."""
    return folder / f"job{number}.pickle"


def answer_file(folder: Path, number: int, rank: int) -> Path:
    """Where a rank leaves its answer."""
    return folder / f"job{number}.rank{rank}.pickle"


def leave(value: object, file: Path) -> None:
    """Pickle a value into a file that appears whole."""
    partial = file.with_name(f".{file.name}")
    partial.write_bytes(pickle.dumps(value))
    partial.replace(file)


class Pool:
    """Ranks on this machine, as many as the largest job so far. Use as a context: none is alive afterwards."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._jobs = 0

    def __enter__(self) -> "Pool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, job: Job, waiting: Callable[[], None] = lambda: None) -> list[Any]:
        """What each rank of the job's world returned, in rank order. `waiting` is called again and again meanwhile.

        Raises RunFailed with what the first failing rank said.
        """
        folder, number = self._started(job.world), self._jobs
        self._jobs += 1
        leave(job, job_file(folder, number))
        answers: dict[int, Answer] = {}
        broken: float | None = None  # since when
        while len(answers) < job.world:
            for rank in range(job.world):
                file = answer_file(folder, number, rank)
                if rank not in answers and file.exists():
                    answers[rank] = pickle.loads(file.read_bytes())  # written by our own child
                elif rank not in answers and self._processes[rank].poll() is not None:
                    answers[rank] = Answer(error=_aborted(folder / f"rank{rank}.log"))
            if broken is None and any(answer.error for answer in answers.values()):
                broken = time.monotonic()
            if broken is not None and time.monotonic() - broken > GRACE_S:
                break
            waiting()
            time.sleep(_LOOK_S)
        if broken is not None:
            self.close()
            raise RunFailed(_causes(answers))
        return [answers[rank].value for rank in range(job.world)]

    def close(self) -> None:
        """End all ranks."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _started(self, world: int) -> Path:
        if self._folder is None:
            self._folder, self._jobs = Path(tempfile.mkdtemp(prefix="meshwright-pool-")), 0
        # A job's function may lie wherever this process finds modules.
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**rank_environment(os.environ), "PYTHONPATH": paths}
        for rank in range(len(self._processes), world):
            with (self._folder / f"rank{rank}.log").open("wb") as log:
                arguments = str(self._folder), str(rank), str(self._jobs)
                command = [sys.executable, "-m", "meshwright.trainer.pool_rank", *arguments]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        return self._folder


def _causes(answers: dict[int, Answer]) -> str:
    """What each failed rank said; the first cause before ranks that merely lost a peer, or aborted without a word."""
    said = [(_rank_of_cause(answer.error), f"rank {rank}: {answer.error}") for rank, answer in answers.items()
            if answer.error]  # fmt: skip
    return "\n".join(text for _, text in sorted(said))


def _rank_of_cause(text: str) -> int:
    return 2 if is_echo(text) else 1 if text.startswith(ABORTED) else 0


ABORTED = "ended without a word"


def _aborted(log: Path) -> str:
    """The last thing that a process which is gone has written."""
    lines: Sequence[str] = log.read_text(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.startswith(("Fatal", "  what()"))]
    return f"{ABORTED}: {told[-1]}" if told else ABORTED
