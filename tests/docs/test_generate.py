"""The pages show what the verbs print today, and the examples are what the pages say of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.files.plan_toml import read_plan
from meshwright.files.resolve import read_setup
from meshwright.layout.rules import judge
from meshwright.predictor.step import predict

ROOT = Path(__file__).resolve().parents[2]
WORKED = ROOT / "examples" / "worked-example"
UNEVEN = ROOT / "examples" / "uneven-8gpu"


def verb(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "meshwright", *arguments, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.slow
def test_pages_are_current() -> None:
    command = [sys.executable, "docs/generate.py", "--check-all"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=230, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]


@pytest.mark.slow
def test_the_worked_example_as_written_is_refused_for_exactly_two_reasons() -> None:
    code, answer = verb("check", str(WORKED / "as-written.toml"))
    assert code == 1
    assert not answer["valid"]
    assert [problem["rule"] for problem in answer["problems"]] == ["world-size", "batch-equation"]
    said = " ".join(problem["message"] for problem in answer["problems"])
    assert "4 stages × 2 GPUs × 2 replicas = 16 GPUs, not 8" in said
    assert "2 groups × 16 samples × 4 micro-batches = 128, not 256" in said
    assert {warning["rule"] for warning in answer["warnings"]} >= {
        "bubble", "needless-pipeline", "needless-tensor", "claim-model-too-large", "claim-precision-shrinks-states",
        "claim-dataset-in-memory", "claim-layer-too-large", "claim-within-stage", "claim-triton-profiler",
    }  # fmt: skip
    plain = min(near["step_time_s"] for near in answer["nearby"] if near["kind"] == "plain")
    asked = [near for near in answer["nearby"] if near["kind"] == "neighbour"]
    assert {near["layout"].split(",")[0] for near in asked} == {"tp 2 × pp 4", "dp 2 × pp 4", "dp 2 × tp 2 × pp 2"}
    assert plain < 0.8 * min(near["step_time_s"] for near in asked)


def test_the_goal_without_contradictions_is_clean() -> None:
    assert judge(read_setup(WORKED / "job.toml").proposal) == ()


def test_the_two_placements_train_the_same_batch_on_the_same_devices() -> None:
    split, halves = read_plan(WORKED / "tensor-split.toml"), read_plan(WORKED / "attention-ffn.toml")
    assert split.batch == halves.batch
    assert split.layout.world == halves.layout.world == 8
    assert split.setup.proposal.arch == halves.setup.proposal.arch
    for stage, rank in zip(halves.layout.stages, halves.layout.placement, strict=True):
        kinds = {unit.rpartition(".")[2] for unit in stage} - {"embed", "head"}
        assert kinds <= ({"attn"} if rank % 2 == 0 else {"ffn"})
    bubble = {plan.layout.tp: predict(plan).terms["bubble"] for plan in (split, halves)}
    assert bubble[1] > 2 * bubble[2]


@pytest.mark.parametrize("name", ["job.toml", "on-gpus.toml"])
def test_half_of_eight_devices_idle_about_thirty_percent(name: str) -> None:
    plan = read_plan(UNEVEN / name)
    assert (plan.layout.dp, plan.layout.pp, plan.layout.world) == (4, 2, 8)
    if plan.setup.proposal.cluster.local and plan.setup.proposal.cluster.device.kind == "gpu":
        pytest.skip("the comment is about CPU workers")
    low, high = sorted(predict(plan).idle_fraction)
    assert 0.24 < high < 0.36
    assert low < 0.12


def test_moving_layers_makes_the_idle_half_work() -> None:
    before = predict(read_plan(UNEVEN / "on-gpus.toml"))
    proposed = next(p for p in judge(read_setup(UNEVEN / "on-gpus.toml").proposal) if p.rule == "uneven-stages").legal[
        0
    ]
    after = predict(read_plan(UNEVEN / "on-gpus.toml", [proposed.replace(" = ", "=", 1)]))
    assert max(after.idle_fraction) < 0.5 * max(before.idle_fraction)
    assert after.step_time_s < 0.93 * before.step_time_s


def test_only_blocks_of_the_named_rules_are_kept() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import generate
    finally:
        sys.path.pop(0)
    output = "\n".join([
        "error a.b [one]", "  because", "    - do", "warning a.c, a.d", "[two]", "  also", "warning x [three]", "  no",
        "instead (predicted)", "table", "global 1 = 1", "not valid: 1 error, 2 warnings",
    ])  # fmt: skip
    kept = generate.blocks_of_rules(output, ["two"]).splitlines()
    assert kept == ["[...]", "warning a.c, a.d", "[two]", "  also", "[...]", "not valid: 1 error, 2 warnings"]
    assert generate.blocks_of_rules(output, ["one", "instead"]).splitlines() == [
        "error a.b [one]", "  because", "    - do", "[...]", "instead (predicted)", "table", "global 1 = 1",
        "not valid: 1 error, 2 warnings",
    ]  # fmt: skip
    with pytest.raises(generate.DocumentError, match="four"):
        generate.blocks_of_rules(output, ["four"])


HALVES = """
format = 1
model = { family = "llama", layers = 2, hidden = 32, heads = 2, vocab = 128 }
cluster = { gpu = "local", gpus = 2 }
batch = { global = 8, seq_len = 16, micro_batch = 2 }
training = { precision = "fp32", steps = 2 }
[layout]
dp = 1
tp = 1
pp = 2
schedule = "1f1b"
stages = [["embed", "layers.0.attn"], ["layers.0.ffn"], ["layers.1.attn"], ["layers.1.ffn"], ["head"]]
placement = [0, 1, 0, 1, 0]
"""


@pytest.mark.slow
def test_attention_on_one_rank_and_feed_forward_on_the_other_trains_as_one_process_does(tmp_path: Path) -> None:
    (tmp_path / "halves.toml").write_text(HALVES)
    code, answer = verb("parity", str(tmp_path / "halves.toml"), "--steps", "2")
    assert code == 0, answer
    assert answer["equal"]
    assert answer["compared"] == 2
