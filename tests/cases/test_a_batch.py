"""Cases of kind A about batches and pipelines: the planner's part."""

from pathlib import Path

import pytest

import meshwright
from meshwright.layout.batch import exact_nodes

from .jobs import check, job, rules, said, warned

SMALL = "layers = 12\nhidden = 512\nheads = 8\nvocab = 32000"


def a100(gpus: int) -> str:
    return f'gpu = "A100-80GB-SXM"\ngpus = {gpus}' + ('\ninter_node = "ib-hdr"' if gpus > 8 else "")


def test_a4_fewer_ranks_seen_than_believed(tmp_path: Path) -> None:
    file = job(tmp_path, SMALL, "gpus = 1", "global = 8\nseq_len = 128\nmicro_batch = 2\nmicro_batches = 1")
    answer = check(file)
    assert rules(answer) == ["batch-equation"]
    words = said(answer, "batch-equation")
    assert "1 group × 2 samples × 1 micro-batch = 2, not 8" in words
    assert "8 = 2 · 1 · d needs d = 4" in words
    assert "layout.dp = 4" in words
    assert answer["batch"]["equation"].startswith("global 8 = micro_batch 2 · micro_batches 1 · dp")


def test_a4_dividing_by_replicas_not_by_ranks(tmp_path: Path) -> None:
    file = job(tmp_path, SMALL, a100(8), "global = 64\nseq_len = 128\nmicro_batch = 2",
               "[layout]\npp = 4\ntp = 1\ncp = 1\ndp = 2")  # fmt: skip
    assert check(file)["batch"]["equation"] == "global 64 = micro_batch 2 · micro_batches 16 · dp 2"
    wrong = check(file, "batch.micro_batches=4")
    assert rules(wrong) == ["batch-equation"]
    assert "16 micro-batches give 64" in said(wrong, "batch-equation")


def test_a4_nearest_global_batches(tmp_path: Path) -> None:
    file = job(tmp_path, SMALL, a100(2), "global = 30\nseq_len = 128\nmicro_batch = 4", "[layout]\ndp = 2")
    words = said(check(file), "batch-equation")
    assert "global 30 = micro_batch 4 · micro_batches ? · dp 2" in words
    assert "batch.global = 24 or 32" in words


SIZE = "layers = 4\nhidden = 1024\nheads = 16\nvocab = 32000"


def test_a6_node_counts_that_keep_the_global_batch(tmp_path: Path) -> None:
    assert exact_nodes(2880, 6, 8) == (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
    exact = []
    for nodes in range(1, 13):
        file = job(tmp_path, SIZE, a100(8 * nodes), "global = 2880\nseq_len = 512\nmicro_batch = 6",
                   f"[layout]\ndp = {8 * nodes}\ntp = 1\npp = 1\ncp = 1\nzero = 1\nrecompute = 'none'")  # fmt: skip
        answer = check(file)
        if answer["valid"]:
            exact.append(nodes)
            assert answer["batch"]["micro_batches"] == 60 // nodes
        if nodes == 7:
            words = said(answer, "batch-equation")
            assert "batch.global = 2688 or 3024" in words
            assert "1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60 nodes keep batch.global = 2880" in words
    assert exact == [1, 2, 3, 4, 5, 6, 10, 12]


def test_a6_states_follow_a_plus_b_over_n_and_activations_stay(tmp_path: Path) -> None:
    states, rest = [], []
    for nodes in (1, 2, 3, 4, 5):
        file = job(tmp_path, SIZE, a100(8 * nodes), "global = 2880\nseq_len = 512\nmicro_batch = 6",
                   f"[layout]\ndp = {8 * nodes}\ntp = 1\npp = 1\ncp = 1\nzero = 1\nrecompute = 'none'",
                   "megatron")  # fmt: skip
        (stage,) = meshwright.memory(file)["stages"]
        kinds = {kind: stage["parts_gib"].get(kind, 0.0) for kind in ("weights", "gradients", "master", "optimizer")}
        states.append(sum(kinds.values()))
        rest.append(stage["parts_gib"]["activations"])
    assert rest == pytest.approx([rest[0]] * 5)
    b = (states[0] - states[1]) / (1 / 8 - 1 / 16)
    a = states[0] - b / 8
    assert states[2:] == pytest.approx([a + b / (8 * n) for n in (3, 4, 5)], rel=1e-3)
    assert b > a > 0  # 12 B sharded, 6 B not


@pytest.mark.parametrize(("schedule", "field"), [("1f1b", "micro_batch"), ("gpipe", "micro_batches")])
def test_a8_one_micro_batch_for_eight_stages_is_legal_and_idle(tmp_path: Path, schedule: str, field: str) -> None:
    file = job(tmp_path, SMALL, a100(8), f"global = 1\nseq_len = 128\n{field} = 1",
               f"[layout]\npp = 8\ndp = 1\ntp = 1\ncp = 1\nschedule = '{schedule}'")  # fmt: skip
    answer = check(file)
    assert answer["valid"] is True
    (found,) = [one for one in answer["warnings"] if one["rule"] == "few-micro-batches"]
    assert f"batch.{field}" in found["fields"]
    assert "1 micro-batch for 8 stages" in found["message"]
    assert "87.5%" in found["message"]


def test_a8_interleaving_needs_rounds_of_micro_batches(tmp_path: Path) -> None:
    file = job(tmp_path, SMALL, a100(6), "global = 3\nseq_len = 128\nmicro_batch = 1",
               "[layout]\npp = 6\nvpp = 2\ndp = 1\ntp = 1\ncp = 1\nschedule = 'interleaved'")  # fmt: skip
    answer = check(file)
    assert rules(answer) == ["schedule-micro-batches"]
    words = said(answer, "schedule-micro-batches")
    assert "multiple of pp = 6, not 3" in words
    assert "batch.micro_batches = 6" in words
    assert "62.5%" in words
    plain = check(file, "layout.vpp=1", "layout.schedule=gpipe")
    assert plain["valid"] is True
    assert "62.5%" in said(plain, "few-micro-batches")


def test_a8_unequal_micro_batches_are_refused(tmp_path: Path) -> None:
    file = job(tmp_path, SMALL, a100(3), "global = 8\nseq_len = 128\nmicro_batches = 3",
               "[layout]\npp = 3\ndp = 1\ntp = 1\ncp = 1")  # fmt: skip
    answer = check(file)
    assert rules(answer) == ["batch-equation"]
    assert "batch.global = 6 or 9" in said(answer, "batch-equation")


NEOX = """\
layers = 44
hidden = 6144
heads = 64
vocab = 50432
ffn_hidden = 24576
gated = false
norm = "layer"
parallel_residual = true
family = "gpt_neox"
"""


@pytest.mark.parametrize(("m", "global_batch"), [(1, 64), (8, 512)])
def test_a10_a_pipeline_that_was_not_needed(tmp_path: Path, m: int, global_batch: int) -> None:
    file = job(tmp_path, NEOX, a100(128), f"global = {global_batch}\nseq_len = 4096")
    best = meshwright.plan(file, top=3)["plans"]
    assert best[0]["layout"]["pp"] == 1
    assert best[0]["layout"]["tp"] <= 8
    piped = ("layout.tp=2", "layout.pp=4", "layout.cp=1", "layout.dp=16", "layout.zero=1", f"batch.micro_batches={m}",
             "layout.schedule=1f1b")  # fmt: skip
    forced = meshwright.plan(file, top=1, overrides=list(piped))["plans"][0]
    flat = meshwright.plan(file, top=1, overrides=["layout.tp=2", "layout.pp=1", "layout.zero=1"])["plans"][0]
    assert flat["step_time_s"] < forced["step_time_s"]
    answer = check(file, *piped)
    assert "needless-pipeline" in warned(answer)
    if m == 1:
        assert "75.0%" in said(answer, "few-micro-batches")
        assert forced["bubble_fraction"] == pytest.approx(0.75, abs=0.05)
