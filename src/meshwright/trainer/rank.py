"""The first code of every rank: run the worker, leave last words when it fails, and never outlive the launcher.

`python -m meshwright.trainer.rank WORKER RUN_DIR`: WORKER is a module name or the path of a script.
"""

import os
import runpy
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from meshwright.files.strict_json import dump

LOGS = "logs"
_LONGEST = 600  # characters of an exception's text that are kept


@dataclass(frozen=True, slots=True)
class LastWords:
    """Why a rank ended, in its own words."""

    rank: int
    type: str
    message: str
    time: float  # seconds since the epoch
    exit_code: int  # what the command line should exit with: 2 for an InputError, ...


def words_file(run: Path, rank: int) -> Path:
    """Where a rank leaves its last words."""
    return run / LOGS / f"rank{rank:05}.error.json"


def log_file(run: Path, rank: int, stream: str) -> Path:
    """Where a rank's output ("out") and errors ("err") go."""
    return run / LOGS / f"rank{rank:05}.{stream}"


def follow_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """End this process by a signal when its parent is gone, so that a killed launcher leaves nothing behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), by)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def run_worker(worker: str, run: Path) -> None:
    """Run the worker as `__main__` with the run folder as its only argument; leave last words when it raises."""
    held = sys.argv
    sys.argv = [worker, str(run)]
    try:
        if worker.endswith(".py"):
            runpy.run_path(worker, run_name="__main__")
        else:
            runpy.run_module(worker, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    except Exception as error:
        rank, text = int(os.environ.get("RANK", "0")), str(error).strip()[:_LONGEST]
        code = getattr(error, "exit_code", 3)
        dump(LastWords(rank, type(error).__name__, text, time.time(), code), words_file(run, rank))
        raise
    finally:
        sys.argv = held


if __name__ == "__main__":
    follow_parent()
    run_worker(sys.argv[1], Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # All is written. Interpreter teardown races with the threads of gloo and the profiler and can abort the process.
    os._exit(0)
