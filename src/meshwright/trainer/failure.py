"""Which rank failed first and why, from exit codes, last words and logs.

When one rank dies its peers fail within half a second with messages about closed connections, and a hung rank makes
everyone else time out. The first cause is told from those echoes here.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.basics.errors import AnswerIsNo, InputError, RunFailed, bad_input
from meshwright.files.strict_json import load_as
from meshwright.trainer.rank import LOGS, LastWords, log_file, words_file

_ECHOES = (
    "connection closed by peer", "connection reset by peer", "broken pipe", "timed out waiting", "connection refused",
    "socket closed", "remote process exited", "watchdog",
)  # fmt: skip
_TIMED_OUT = "timed out waiting"
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank's process ended: `exit_code` is minus the signal's number when one ended it."""

    rank: int
    exit_code: int
    time: float


@dataclass(frozen=True, slots=True)
class Failures:
    """What the agent saw: the ranks that did not end well. Those absent ended with 0."""

    world: int
    ended: tuple[Ended, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """One rank's failure with all that is known of it."""

    ended: Ended
    words: LastWords | None
    last_line: str

    @property
    def text(self) -> str:
        """Its own words, else the last line it wrote."""
        if self.words is None:
            return self.last_line
        said = self.words.message  # a RunFailed is written for people already
        return said if self.words.type == RunFailed.__name__ else f"{self.words.type}: {said}"

    @property
    def is_echo(self) -> bool:
        """Does it merely report that a peer was lost?"""
        return is_echo(self.text)

    @property
    def timed_out(self) -> bool:
        """Did it wait for a peer in vain?"""
        return _TIMED_OUT in self.text.lower()


def is_echo(text: str) -> bool:
    """Is that what a rank says which has merely lost a peer?"""
    return any(mark in text.lower() for mark in _ECHOES)


def failures_file(run: Path) -> Path:
    """Where the agent reports."""
    return run / LOGS / "failures.json"


def explain(run: Path, exit_code: int, last_step: int | None) -> InputError | AnswerIsNo | RunFailed:
    """The error to raise for a run whose agent ended with `exit_code`: RunFailed naming rank, how it ended, the last
    finished step and its last line; or the worker's own InputError or AnswerIsNo when the ranks raised one.
    """
    logs = run / LOGS
    if not failures_file(run).exists():
        said = last_line(logs / "agent.log") or f"exit code {exit_code}"
        return RunFailed(f"the ranks could not be started: {said} (logs in {logs})")
    failures = load_as(failures_file(run), Failures)
    causes = in_order([_cause(run, ended) for ended in failures.ended])
    first = causes[0]
    if first.words and first.words.exit_code == 1:
        return AnswerIsNo(first.words.message)
    if first.words and first.words.exit_code == 2:
        return bad_input(first.words.message)
    when = "before its first step" if last_step is None else f"after step {last_step}"
    story = f"failed {when}: {_ending(first)}"
    blamed, behaviour = _suspects(failures, causes)
    if blamed:
        ranks = f"rank{'s' if len(blamed) > 1 else ''} {', '.join(map(str, blamed))} of {failures.world}"
        story = f"{ranks} {behaviour}; then rank {first.ended.rank} {story}"
    else:
        story = f"rank {first.ended.rank} of {failures.world} {story}"
    return RunFailed(f"{story}; its log is {log_file(run, first.ended.rank, 'err')}")


def in_order(causes: Sequence[Cause]) -> list[Cause]:
    """Causes, then aborts (the collectives' threads abort on a lost peer too), then echoes, then ranks that were only
    stopped; by time among equals.
    """

    def order(cause: Cause) -> tuple[int, float]:
        aborted = cause.ended.exit_code == -signal.SIGABRT
        weight = 3 if was_stopped(cause, causes) else 2 if cause.is_echo else 1 if aborted else 0
        return weight, cause.words.time if cause.words else cause.ended.time

    return sorted(causes, key=order)


def was_stopped(cause: Cause, causes: Sequence[Cause]) -> bool:
    """Was it still running when the run was ended? SIGKILL follows SIGTERM for a rank that hangs: then its peers have
    timed out, whereas those of a rank that someone else killed see a closed connection.
    """
    if cause.words is not None:
        return False
    hung = cause.ended.exit_code == -signal.SIGKILL and any(other.timed_out for other in causes)
    return hung or cause.ended.exit_code == -signal.SIGTERM


def _cause(run: Path, ended: Ended) -> Cause:
    file = words_file(run, ended.rank)
    words = load_as(file, LastWords) if file.exists() else None
    return Cause(ended, words, last_line(log_file(run, ended.rank, "err")))


def _ending(cause: Cause) -> str:
    code = cause.ended.exit_code
    if cause.words:
        return cause.text[:_LONGEST_LINE]
    how = f"exit code {code}"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
        how = f"killed by signal {-code} ({name})"
        if -code == signal.SIGKILL:
            how += ", as the system does when memory runs out"
    return f"{how}, last line {cause.last_line!r}" if cause.last_line else how


def _suspects(failures: Failures, causes: list[Cause]) -> tuple[list[int], str]:
    """When every failure is an echo: who had left early with exit code 0, or was still running when others gave up."""
    if not causes[0].is_echo:
        return [], ""
    seen = {cause.ended.rank for cause in causes}
    left = [rank for rank in range(failures.world) if rank not in seen]
    if left:
        return left, "ended early with exit code 0"
    if causes[0].timed_out:
        return sorted(cause.ended.rank for cause in causes if was_stopped(cause, causes)), "did not answer"
    return [], ""


def last_line(file: Path) -> str:
    """The telling last line of a log: what C++ threw, else the last line with text that is not a stack dump."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip() for line in lines if line.strip()]
    thrown = [line for line in lines if line.startswith("what():")]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    chosen = thrown[-1:] or fatal[-1:] or lines[-1:]
    return chosen[0][:_LONGEST_LINE] if chosen else ""
