"""The command line as people start it: a process, its exit code, its two streams."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

JOB = """\
format = 1
[model]
layers = 4
hidden = 256
heads = 8
vocab = 4096
[cluster]
gpu = "H100-80GB-SXM"
gpus = 4
[batch]
global = 16
seq_len = 128
"""

PLAN = (
    JOB
    + """\
micro_batch = 2
[layout]
dp = 2
tp = 1
pp = 2
schedule = "1f1b"
stages = [["embed", "layers.0-1"], ["layers.2-3", "head"]]
"""
)


@dataclass(frozen=True)
class Ended:
    """How one command line ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The single JSON object on standard output; anything beside it fails."""
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a job whose layout is free and one whose layout is complete."""
    (tmp_path / "free.toml").write_text(JOB)
    (tmp_path / "fixed.toml").write_text(PLAN)
    return tmp_path


@pytest.fixture
def meshwright(folder: Path) -> Run:
    """Run a command line in `folder`."""

    def run(*arguments: str, **options: Any) -> Ended:
        command = [sys.executable, "-m", "meshwright", *arguments]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run
