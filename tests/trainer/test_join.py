"""Being one rank of a launch made by torchrun or srun."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from meshwright.files.run import RunFolder
from meshwright.files.run_io import read_result
from meshwright.files.strict_json import dump

pytest.importorskip("torch")

HERE = Path(__file__).parent
PROGRAM = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from plans import plan
from meshwright.basics.errors import InputError, RunFailed
from meshwright.trainer.launch import train
from meshwright.trainer.options import Phase, TrainOptions
rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID")
options = TrainOptions(Path(sys.argv[1]), (Phase("measured", 3),), Path(sys.argv[2]), timeout_s=60)
try:
    result = train(plan(dp=2), options, lambda line: print(rank, line, flush=True), worker=sys.argv[4])
except (InputError, RunFailed) as error:
    print(rank, type(error).__name__, error, flush=True)
    sys.exit(error.exit_code)
print(rank, "result", result.steps, result.run, flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """A script that trains as its environment says, and its arguments."""
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    (np.arange(4000) % 256).astype(np.uint16).tofile(tokens / "tokens.bin")
    header = {"dtype": "uint16", "count": 4000, "vocab": 256, "documents": 1, "text_bytes": 9000, "corpus": "numbers"}
    dump(header, tokens / "header.json")
    (tmp_path / "program.py").write_text(PROGRAM)
    worker = str(HERE / "fake_worker.py")
    return [str(tmp_path / "program.py"), str(tmp_path / "runs" / "demo"), str(tokens), str(HERE), worker]


def by_srun(program: list[str]) -> list[tuple[int, str]]:
    """Exit code and output of two processes as srun starts them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost"}
    ranks = []
    for rank in ("0", "1"):
        # srun sets no RANK; the stand-in worker reads the one that joining sets.
        env = {**os.environ, **slurm, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "MASTER_PORT": port}
        ranks.append(subprocess.Popen([sys.executable, *program], env=env, stdout=subprocess.PIPE, text=True))
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    return [(rank.returncode, out) for rank, out in zip(ranks, said, strict=True)]


@pytest.mark.slow
def test_two_ranks_started_by_torchrun_share_one_run(program: list[str], tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, *program], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "demo"
    lines = done.stdout.splitlines()
    assert {f"0 result 3 {run}", f"1 result 3 {run}"} <= set(lines)
    assert [line for line in lines if "step" in line] == [
        f"0 step {n} of 3: loss {7 - 0.1 * n:.4f}, {100 * n}.0 ms" for n in (1, 2, 3)
    ]
    assert read_result(RunFolder(run).result).steps == 3
    assert [folder.name for folder in run.parent.iterdir()] == ["demo"]


@pytest.mark.slow
def test_two_ranks_started_by_srun_share_one_run(program: list[str], tmp_path: Path) -> None:
    (first, said), (second, also_said) = by_srun(program)
    assert (first, second) == (0, 0)
    run = tmp_path / "runs" / "demo"
    assert said.splitlines()[-1] == f"0 result 3 {run}"
    assert also_said.splitlines() == [f"1 result 3 {run}"]


@pytest.mark.slow
def test_when_rank_0_cannot_prepare_nobody_waits(program: list[str]) -> None:
    (Path(program[2]) / "tokens.bin").write_bytes(b"")
    (first, said), (second, also_said) = by_srun(program)
    assert (first, second) == (2, 3)
    assert "InputError" in said
    assert "must hold 4000 tokens" in said
    assert also_said.strip() == "1 RunFailed rank 1: rank 0 could not prepare the run"
