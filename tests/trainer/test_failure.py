"""Telling the first cause from its echoes."""

import signal
from pathlib import Path

import pytest

from meshwright.basics.errors import AnswerIsNo, InputError, RunFailed
from meshwright.files.strict_json import dump
from meshwright.trainer.failure import Ended, Failures, explain, failures_file, last_line
from meshwright.trainer.rank import LastWords, log_file, words_file

LOST = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:31415"
ABORT, KILL, TERM = -signal.SIGABRT, -signal.SIGKILL, -signal.SIGTERM


@pytest.fixture
def run(tmp_path: Path) -> Path:
    failures_file(tmp_path).parent.mkdir()
    return tmp_path


def say(run: Path, rank: int, kind: str, message: str, time: float, exit_code: int = 3) -> None:
    dump(LastWords(rank, kind, message, time, exit_code), words_file(run, rank))


def told(run: Path, world: int, *ended: Ended, last_step: int | None = 4) -> str:
    dump(Failures(world, ended), failures_file(run))
    error = explain(run, 1, last_step)
    assert isinstance(error, RunFailed)
    assert "\n" not in str(error)
    return str(error)


def test_a_killed_rank_comes_before_peers_that_spoke_earlier(run: Path) -> None:
    for rank in (0, 2, 3):
        say(run, rank, "RuntimeError", LOST, 100.1)
    said = told(run, 4, Ended(0, 1, 101), Ended(1, KILL, 101), Ended(2, 1, 101), Ended(3, 1, 101))
    assert said.startswith("rank 1 of 4 failed after step 4: killed by signal 9 (SIGKILL)")
    assert "rank00001.err" in said


def test_the_first_exception_that_is_no_echo_wins(run: Path) -> None:
    say(run, 0, "RuntimeError", LOST, 100.0)
    say(run, 1, "ValueError", "second", 100.3)
    say(run, 2, "KeyError", "first", 100.2)
    said = told(run, 4, Ended(0, 1, 101), Ended(1, 1, 101), Ended(2, 1, 101), Ended(3, TERM, 101), last_step=None)
    assert said.startswith("rank 2 of 4 failed before its first step: KeyError: first")


def test_an_abort_from_a_lost_peer_is_an_echo_of_the_exception(run: Path) -> None:
    abort = f"terminate called\n  what():  {LOST}\nFatal Python error: Aborted\n\nThread 0x1:\n  File x\n"
    log_file(run, 0, "err").write_text(abort)
    say(run, 1, "ValueError", "bad shape", 100.0)
    assert "rank 1 of 2 failed after step 4: ValueError: bad shape" in told(
        run, 2, Ended(0, ABORT, 99), Ended(1, 1, 101)
    )


def test_an_abort_alone_shows_what_was_thrown(run: Path) -> None:
    abort = "starting\nterminate called\n  what():  std::bad_alloc\nFatal Python error: Aborted\nExtension modules: a\n"
    log_file(run, 0, "err").write_text(abort)
    said = told(run, 1, Ended(0, ABORT, 99))
    assert "killed by signal 6 (SIGABRT), last line 'what():  std::bad_alloc'" in said


@pytest.mark.parametrize("end", [TERM, KILL])
def test_a_hung_rank_is_named_by_its_silence(run: Path, end: int) -> None:
    for rank in (0, 1, 3):
        say(run, rank, "RuntimeError", "Timed out waiting 10000ms for send operation to complete", 110.1 + rank)
    said = told(run, 4, Ended(0, 1, 111), Ended(1, 1, 111), Ended(2, end, 111), Ended(3, 1, 111))
    assert said.startswith("rank 2 of 4 did not answer; then rank 0 failed after step 4: RuntimeError: Timed out")


def test_a_rank_that_left_with_0_is_named(run: Path) -> None:
    say(run, 1, "RuntimeError", LOST, 100.0)
    assert told(run, 3, Ended(1, 1, 101), Ended(0, TERM, 101)).startswith("rank 2 of 3 ended early with exit code 0")


@pytest.mark.parametrize(("code", "kind"), [(1, AnswerIsNo), (2, InputError)])
def test_what_the_worker_says_to_people_keeps_its_exit_code(run: Path, code: int, kind: type[Exception]) -> None:
    say(run, 0, "X", "unknown family 'bert'", 1.0, exit_code=code)
    dump(Failures(2, (Ended(0, 1, 1), Ended(1, TERM, 1))), failures_file(run))
    error = explain(run, 1, None)
    assert isinstance(error, kind)
    assert str(error) == "unknown family 'bert'"


def test_an_agent_that_could_not_start_shows_its_last_line(run: Path) -> None:
    (run / "logs" / "agent.log").write_text("Traceback (most recent call last):\n  ...\nImportError: libgomp.so.1\n\n")
    error = explain(run, 1, None)
    assert str(error).startswith("the ranks could not be started: ImportError: libgomp.so.1")


def test_no_log_no_last_line(tmp_path: Path) -> None:
    assert last_line(tmp_path / "absent") == ""
