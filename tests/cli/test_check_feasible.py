"""`check` on what breaks no rule and still cannot run: memory, and the framework that the job names."""

from pathlib import Path
from typing import Any

import pytest

import meshwright
from meshwright.basics.errors import InputError

# 7B, sequences of 4096, micro-batch 2, states sharded by 8: 87 GiB without recompute, 53 GiB with full recompute.
JOB = """\
[model]
name = "llama-2-7b"
[cluster]
gpu = "A100-80GB-SXM"
gpus = 8
[batch]
global = 128
seq_len = 4096
micro_batch = 2
[layout]
dp = 8
tp = 1
pp = 1
cp = 1
zero = 1
recompute = "none"
[search]
runnable_by = "megatron"
"""


def check(folder: Path, *overrides: str) -> Any:
    path = folder / "job.toml"
    path.write_text(JOB)
    return meshwright.check(path, overrides=list(overrides))


def found(answer: Any, rule: str) -> Any:
    return next((one for one in (*answer["problems"], *answer["warnings"]) if one["rule"] == rule), None)


def test_what_does_not_fit_is_said_with_what_would(tmp_path: Path) -> None:
    problem = found(check(tmp_path), "does-not-fit")
    assert problem is not None
    need = float(problem["message"].split("predicted to need ")[1].split(" GiB")[0])
    assert 78 < need < 96  # 87 GiB, give or take the activations' 10 %
    assert problem["legal"]
    assert found(check(tmp_path, "layout.recompute=full"), "does-not-fit") is None
    for remedy in problem["legal"]:
        assert "GiB" in remedy


def test_all_but_certain_is_an_error_and_a_free_choice_none(tmp_path: Path) -> None:
    answer = check(tmp_path, "cluster.memory_gib=60")
    assert [one["rule"] for one in answer["problems"]] == ["does-not-fit"]
    assert answer["valid"] is False
    path = tmp_path / "job.toml"
    path.write_text(JOB.replace('recompute = "none"\n', ""))  # recompute is then chosen
    assert meshwright.check(path, overrides=["cluster.memory_gib=60"])["valid"] is True


def test_the_remedies_do_fit(tmp_path: Path) -> None:
    (remedy, *_) = [
        one for one in found(check(tmp_path), "does-not-fit")["legal"] if one.startswith("layout.zero")
    ] or [""]  # fmt: skip
    if remedy:
        key = remedy.split(":")[0].replace(" ", "")
        assert found(check(tmp_path, key), "does-not-fit") is None
    smaller = check(tmp_path, "layout.tp=2", "layout.dp=4")
    assert found(smaller, "does-not-fit") is None


def test_a_framework_that_cannot_run_it_is_named_with_those_that_can(tmp_path: Path) -> None:
    sound = ("layout.recompute=full", "layout.offload=parameters", "layout.zero=3")
    answer = check(tmp_path, *sound)
    problem = found(answer, "runnable-by")
    assert "megatron offloads none or optimizer, not parameters" in problem["message"]
    assert problem["legal"] == ["search.runnable_by = torchtitan", "search.runnable_by = deepspeed"]
    assert answer["valid"] is True
    assert found(check(tmp_path, *sound, "search.runnable_by=torchtitan"), "runnable-by") is None


def test_nothing_is_asked_while_the_degrees_are_open(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB[: JOB.index("[layout]")] + '[search]\nrunnable_by = "any"\n')
    answer = meshwright.check(path)
    assert (answer["problems"], answer["warnings"]) == ([], [])


UNRUNNABLE = """\
[model]
name = "deepseek-v3"
[cluster]
gpu = "H800"
gpus = 2048
inter_node = "ib-ndr"
[batch]
global = 15360
seq_len = 4096
micro_batch = 1
[layout]
dp = 128
pp = 16
tp = 1
cp = 1
ep = 64
vpp = 2
schedule = "dualpipev"
zero = 1
recompute = "none"
[search]
runnable_by = "any"
"""


def test_memory_is_judged_also_where_no_framework_can_run_it(tmp_path: Path) -> None:
    """`check` and `memory` must not contradict one another."""
    path = tmp_path / "job.toml"
    path.write_text(UNRUNNABLE)
    answer: Any = meshwright.check(path)
    assert found(answer, "runnable-by") is not None
    problem = found(answer, "does-not-fit")
    assert problem is not None
    assert answer["valid"] is False
    most = max(rank["total_gib"] for rank in meshwright.memory(path)["stages"])
    assert float(problem["message"].split("predicted to need ")[1].split(" GiB")[0]) == round(most)
    fitting: Any = meshwright.check(path, overrides=["layout.recompute=full"])
    assert found(fitting, "does-not-fit") is None
    assert fitting["valid"] is True


def test_what_the_verdict_leaves_open_is_named(tmp_path: Path) -> None:
    def left(*gone: str) -> tuple[list[str], list[str]]:
        text = "\n".join(line for line in JOB.splitlines() if line.split(" ")[0] not in gone)
        (tmp_path / "job.toml").write_text(text)
        answer: Any = meshwright.check(tmp_path / "job.toml")
        return answer["undecided"], answer["thriftiest"]

    assert left() == ([], [])
    assert left("zero") == ([], ["layout.zero"])
    assert left("dp") == ([], [])  # the other degrees and the devices leave one choice
    assert left("dp", "tp", "zero") == (["layout.dp", "layout.tp"], [])


def test_a_job_to_be_priced_that_is_not_there_is_missed_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"search\.cost_of.*no such file"):
        check(tmp_path, "search.cost_of=elsewhere.toml")
