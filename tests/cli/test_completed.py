"""A job that leaves only its stages open is predicted with stages that are cut for it, and the answer says so."""

from pathlib import Path

import pytest

import meshwright
from meshwright.basics.errors import InputError
from meshwright.cli.completed import read_or_cut
from meshwright.layout.rules import judge

JOB = """\
[model]
layers = 9
hidden = 256
heads = 8
vocab = 4096
[cluster]
gpu = "H100-SXM"
gpus = 8
[batch]
global = 32
seq_len = 128
micro_batch = 1
[layout]
dp = 2
tp = 1
pp = 4
"""


def job(folder: Path, rest: str) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB + rest + '\n[search]\nrunnable_by = "any"\n')
    return path


@pytest.mark.parametrize(
    ("rest", "stages"),
    [('schedule = "1f1b"', 4), ('schedule = "zbv"', 8), ('schedule = "interleaved"\nvpp = 3', 12)],
)
def test_only_stages_are_missing(tmp_path: Path, rest: str, stages: int) -> None:
    path = job(tmp_path, rest)
    plan, cut = read_or_cut(path)
    assert cut
    assert len(plan.layout.stages) == stages
    names = [unit for stage in plan.layout.stages for unit in stage]
    assert (names[0], names[-1], len(names)) == ("embed", "head", 20)
    assert not [one for one in judge(plan.setup.proposal) if one.severity == "error"]
    answer = meshwright.memory(path)
    assert len(answer["cut"]) == stages
    assert len(meshwright.predict(path)["stages"]) == stages
    assert not read_or_cut(path, ["layout.pp=1", "layout.dp=8", "layout.vpp=1", 'layout.schedule="1f1b"'])[1]


def test_what_more_is_missing_is_still_asked_for(tmp_path: Path) -> None:
    for rest in ("", 'schedule = "1f1b"\nplacement = [0, 1, 2, 3]'):
        with pytest.raises(InputError, match=r"missing .*layout\.stages"):
            meshwright.memory(job(tmp_path, rest))
