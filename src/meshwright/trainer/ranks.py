"""Start the ranks of a run on this machine, and end them whatever happens."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from meshwright.trainer.rank import LOGS

GRACE_S = 5.0  # between a rank's failure and the killing of those that do not end
STOP_S = 8.0  # for the agent to end its ranks before it is killed


def rank_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks: one thread each, loopback only unless the user chose an interface."""
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return {
        "GLOO_SOCKET_IFNAME": loopback,
        **base,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


@contextmanager
def running(worker: str, run: Path, world: int, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The agent that starts `world` ranks; when the block is left, by whatever way, none of them is alive."""
    (run / LOGS).mkdir(exist_ok=True)
    with (run / LOGS / "agent.log").open("wb") as log:
        command = [sys.executable, "-m", "meshwright.trainer.agent", worker, str(run), str(world)]
        agent = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=dict(env),
            start_new_session=True,
        )  # fmt: skip
        try:
            yield agent
        finally:
            stop(agent)


def stop(agent: "subprocess.Popen[bytes]") -> None:
    """End the agent and its ranks: asked first, killed when that takes too long or the user loses patience."""
    if agent.poll() is not None:
        return
    ranks = children(agent.pid)
    agent.terminate()
    try:
        agent.wait(STOP_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        ranks |= children(agent.pid)
        agent.kill()
        agent.wait()
    for rank in ranks:
        _end_group(rank)


def failed_since(run: Path) -> float:
    """Seconds since the first rank left its last words; 0 when none has."""
    now = time.time()
    return max((now - file.stat().st_mtime for file in (run / LOGS).glob("*.error.json")), default=0.0)


def kill_ranks(agent: "subprocess.Popen[bytes]") -> None:
    """Kill the ranks that are left, so that the agent can report; a stopped process does not heed its SIGTERM."""
    for rank in children(agent.pid):
        _end_group(rank)


def children(parent: int) -> set[int]:
    """Processes started by `parent`, where /proc tells; elsewhere ranks notice by themselves that it is gone."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.add(int(stat.parent.name))
    return found


def _end_group(leader: int) -> None:
    """Kill what is left of a rank's own session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
