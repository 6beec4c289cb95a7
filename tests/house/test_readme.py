"""The README's walk through the loop, command by command, as a reader would type it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def _walk() -> list[list[str]]:
    block = (REPOSITORY / "README.md").read_text().split("## The loop by hand")[1].split("```sh\n")[1].split("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_the_walk_names_every_step_of_the_loop() -> None:
    verbs = [words[1] for words in _walk()]
    assert verbs == ["init", "check", "plan", "train", "diagnose", "rebalance", "report", "tune"]


@pytest.mark.slow
def test_every_command_of_the_walk_works(tmp_path: Path) -> None:
    for words in _walk():
        if words[1] == "tune":  # the loop itself has tests of its own; here it would train twice more
            continue
        command = [sys.executable, "-m", *words]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
        assert result.returncode == 0, f"{' '.join(words)}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        if words[1] == "init":  # a job small enough for a test
            job = tmp_path / "job.toml"
            text, count = re.subn(r"^steps = 20$", "steps = 2", job.read_text(), flags=re.M)
            assert count == 1
            job.write_text(text.replace("seq_len = 128", "seq_len = 32"))
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 1_000_000
    assert (tmp_path / "better.toml").exists()
