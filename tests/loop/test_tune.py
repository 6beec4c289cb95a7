"""The loop end to end on real processes: an uneven pipeline is measured, rebalanced, and measured again."""

import json
from pathlib import Path

import pytest

from meshwright.files.resolve import read_setup
from meshwright.files.run_io import read_findings, read_metrics
from meshwright.loop.tune import tune

pytest.importorskip("torch", reason="training needs meshwright[train]")

JOB = """
format = 1
[model]
layers = 6
hidden = 128
heads = 4
kv_heads = 2
ffn_hidden = 384
vocab = 512
family = "llama"
[cluster]
gpu = "local"
gpus = 2
[batch]
global = 8
seq_len = 64
micro_batch = 1
[training]
precision = "fp32"
lr = 1e-3
steps = 3
[layout]
dp = 1
tp = 1
pp = 2
schedule = "1f1b"
recompute = "none"
zero = 0
stages = [["embed", "layers.0"], ["layers.1-5", "head"]]
[profile]
steps = 1
[tune]
change = ["stages"]
mode = "dilated"
repeats = 2
steps = 2
max_changes = 1
"""


@pytest.mark.slow
def test_the_loop_moves_layers_and_the_gain_comes(tmp_path: Path) -> None:
    job = tmp_path / "two.toml"
    job.write_text(JOB)
    lines: list[str] = []
    result = tune(read_setup(job), tmp_path / "runs", lines.append)
    (step,) = result.steps
    assert list(step.change) == ["layout.stages"]
    before, after = (len(stage) for stage in step.after.plan.layout.stages)
    assert abs(before - after) <= 3  # of 14 units: an even cut, the head weighs more than half a layer
    # 1 of 6 layers against 5: an even cut saves more than a quarter of the step, and so it must be measured.
    assert step.predicted_gain > 0.25
    assert step.measured_gain > 0.15
    assert step.kept
    assert result.mode == step.after.result.mode == "dilated"
    assert max(step.before.idle_fraction) - max(step.after.idle_fraction) > 0.2

    root = result.folder.root
    assert json.loads((root / "tune.json").read_text())["journal"][0]["kept"] is True
    journal = (root / "tune.md").read_text()
    assert "predicted" in journal
    assert "kept" in journal
    findings = read_findings(root / "run-1" / "findings.json")
    assert findings.findings
    metrics = read_metrics(root / "run-1" / "metrics.jsonl")
    assert metrics[-1].loss < metrics[0].loss
    assert any("starting 2 ranks" in line for line in lines)
