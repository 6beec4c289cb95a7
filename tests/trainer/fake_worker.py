"""A worker without torch, for tests of the launcher: writes what a real one writes, and fails as told by FAKE_FAULT.

FAKE_FAULT is "KIND RANK [STEP]"; ranks that are not the culprit behave as real peers do: they fail, a little later,
with a message about their connection.
"""

import os
import signal
import sys
import time
from pathlib import Path

from meshwright.basics.errors import bad_input
from meshwright.files.run import RankMemory, StepMetrics
from meshwright.files.run_io import append_metrics, write_memory
from meshwright.trainer.options import read_options

run = Path(sys.argv[1])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = read_options(run)
kind, culprit, at = (os.environ.get("FAKE_FAULT", "none -1") + " 2").split()[:3]
pids = run / "pids"
pids.mkdir(exist_ok=True)
(pids / str(rank)).write_text(str(os.getpid()))


def misbehave() -> None:
    if kind == "raise":
        raise ValueError(f"the weights of rank {rank} are gone")
    if kind == "input":
        raise bad_input("unknown family 'bert'", field="model.config", legal="llama, qwen2")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "exit":
        print("leaving with a note", file=sys.stderr)
        sys.stderr.flush()
        os._exit(7)
    if kind == "leave":
        os._exit(0)
    if kind in ("hang", "sleep"):
        time.sleep(600)


def suffer() -> None:
    if kind in ("hang", "stop"):
        time.sleep(0.5)
        raise RuntimeError("Timed out waiting 10000ms for send operation to complete")
    if kind == "sleep":
        time.sleep(600)
    if kind in ("raise", "kill", "exit", "leave"):
        time.sleep(0.05)  # earlier than the agent's next look
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234")


def written() -> int:
    """Steps that rank 0 has reported."""
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


number = 0
for window, phase in enumerate(options.phases):
    for _ in range(phase.steps):
        number += 1
        if number <= int(os.environ.get("FAKE_SKIP", "0")):  # done before a resumption
            continue
        if number == int(at) and kind != "none":
            while written() < number - 1 or (rank != int(culprit) and not (pids / "culprit").exists()):
                time.sleep(0.01)
            if rank == int(culprit):
                (pids / "culprit").touch()
                misbehave()
            else:
                suffer()
        time.sleep(0.02)
        if rank == 0:
            k = options.dilation or 1.0 if phase.mode == "dilated" else 1.0
            step = StepMetrics(
                number, 7.0 - 0.1 * number, 1.0, 1e-3, 1024, 0.1 * k * number, phase.mode, k, window, phase.profile
            )
            append_metrics(run / "metrics.jsonl", step)
if rank == 0:
    held = [RankMemory(r, 1, 1, 2, 2**30, peak_tensors=2**28 + r * 2**28) for r in range(world)]
    write_memory(held, run / "memory.json")
