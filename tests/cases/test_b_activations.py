"""Cases of kind B about activations, logits and verdicts: the planner's part."""

from pathlib import Path
from typing import Any

import pytest

import meshwright
from meshwright.basics.quantities import GIB
from meshwright.files.prediction import StageMemory
from meshwright.predictor.step import predict

from .jobs import job
from .plans_of import A100, plan, states, worst

SEVEN = "layers = 32\nhidden = 4096\nheads = 32\nffn_hidden = 11008\nvocab = 32000"  # 6.738 B
HALVES = [["embed", "layers.0-1"], ["layers.2-3", "head"]]
SMALL = "layers = 4\nhidden = 1024\nheads = 16\nffn_hidden = 2816\nvocab = {vocab}"


def last(folder: Path, vocab: int, tokens: int, precision: str, layout: str = "", chunk: int | None = None) -> Any:
    """The last of two stages for one sample of so many tokens."""
    lines = f"dp = 1\npp = 2\nschedule = '1f1b'\nzero = 0\nstages = {HALVES}\n{layout or 'tp = 1'}"
    lines += "" if chunk is None else f"\nloss_chunk = {chunk}"
    batch = f"global = 4\nseq_len = {tokens}\nmicro_batch = 1"
    gpus = 4 if "tp = 2" in layout else 2
    training = f"[training]\nprecision = '{precision}'"
    return predict(plan(folder, SMALL.format(vocab=vocab), gpus, batch, lines, training)).memory[-1]


@pytest.mark.parametrize(
    ("vocab", "tokens", "precision", "copy_gib"),
    [(128_000, 4096, "bf16", 0.98), (248_320, 11_600, "fp32", 10.7), (151_936, 8192, "fp32", 4.64),
     (128_000, 65_536, "fp32", 31.3)],
)  # fmt: skip
def test_b6_the_last_stage_holds_the_scores(
    tmp_path: Path, vocab: int, tokens: int, precision: str, copy_gib: float
) -> None:
    found: StageMemory = last(tmp_path, vocab, tokens, precision)
    # In half precision the scores, an fp32 copy and its gradient: 2 + 4 + 4 bytes a score; 4 + 4 + 4 in fp32.
    copies = (2 + 4 + 4) / 2 if precision == "bf16" else 3
    assert found.parts["logits"] / GIB == pytest.approx(copies * copy_gib, rel=0.01)


def test_b6_a_vocabulary_parallel_loss_divides_the_scores(tmp_path: Path) -> None:
    whole = last(tmp_path, 128_000, 4096, "bf16", "tp = 2\nsp = true\nvocab_parallel = false").parts["logits"]
    assert last(tmp_path, 128_000, 4096, "bf16", "tp = 2\nsp = true").parts["logits"] == pytest.approx(whole / 2)
    assert last(tmp_path, 128_000, 4096, "bf16").parts["logits"] == pytest.approx(whole)


def test_b6_a_chunked_loss_holds_one_chunk(tmp_path: Path) -> None:
    whole, chunk = (last(tmp_path, 151_936, 8192, "fp32", chunk=size).parts["logits"] for size in (None, 1024))
    assert whole / chunk == pytest.approx(8)
    assert chunk / 3 / GIB == pytest.approx(0.58, rel=0.01)


def test_b6_a_chunked_loss_is_advised_before_more_stages(tmp_path: Path) -> None:
    model = SMALL.format(vocab=248_320)
    layout = f"[layout]\ndp = 1\ntp = 1\npp = 2\nschedule = '1f1b'\nzero = 0\nstages = {HALVES}"
    file = job(tmp_path, model, A100.format(gpus=2), "global = 4\nseq_len = 32768\nmicro_batch = 1", layout)
    labels = [str(entry["label"]) for entry in meshwright.memory(file)["advice"]]
    chunked = next(n for n, label in enumerate(labels) if "loss_chunk" in label or "vocab_parallel" in label)
    assert all("layout.pp" not in label for label in labels[:chunked])


def test_b8_the_global_batch_does_not_change_the_peak(tmp_path: Path) -> None:
    layout = "dp = 8\ntp = 1\npp = 1\nzero = 3\nrecompute = 'full'"
    training = "[training]\ngradient_dtype = 'bf16'"
    few, many = (
        worst(plan(tmp_path, SEVEN, 8, f"global = {size}\nseq_len = 32768\nmicro_batch = 1", layout, training, "any"))
        for size in (32, 128)
    )
    assert few == many
    assert states(few) / GIB == pytest.approx(13.0 * 6.738 / 7.0, rel=0.01)


def test_b8_accumulating_without_reducing_keeps_the_whole_gradient(tmp_path: Path) -> None:
    def total(exchange: str, dtype: str) -> StageMemory:
        layout = f"dp = 8\ntp = 1\npp = 1\nzero = 3\nrecompute = 'full'\ngradient_exchange = '{exchange}'"
        batch = "global = 32\nseq_len = 32768\nmicro_batch = 1"
        return worst(plan(tmp_path, SEVEN, 8, batch, layout, f"[training]\ngradient_dtype = '{dtype}'", "any"))

    for dtype, size in (("bf16", 2), ("fp32", 4)):
        lean, whole = total("micro-batch", dtype), total("step", dtype)
        assert whole.parts["gradients"] - lean.parts["gradients"] == size * 6_738_415_616
        others = [kind for kind in lean.parts if kind not in ("gradients", "reserve")]
        assert [lean.parts[kind] for kind in others] == [whole.parts[kind] for kind in others]


def test_b8_more_devices_hold_smaller_shards(tmp_path: Path) -> None:
    training = "[training]\ngradient_dtype = 'bf16'"
    sizes = []
    for gpus in (8, 64):
        batch = f"global = {4 * gpus}\nseq_len = 32768\nmicro_batch = 1"
        layout = f"dp = {gpus}\ntp = 1\npp = 1\nzero = 3\nrecompute = 'full'"
        sizes.append(states(worst(plan(tmp_path, SEVEN, gpus, batch, layout, training))) / GIB * 7.0 / 6.738)
    assert sizes == pytest.approx([13.0, 1.63], rel=0.01)


@pytest.mark.parametrize(
    ("micro_batch", "recompute", "verdict", "about_gib"),
    [(2, "none", "does not fit", 87.0), (2, "full", "fits", 52.7), (1, "none", "tight", 67.0)],
)
def test_b10_does_a_7b_fit_on_an_80_gb_card(
    tmp_path: Path, micro_batch: int, recompute: str, verdict: str, about_gib: float
) -> None:
    batch = f"global = 16\nseq_len = 4096\nmicro_batch = {micro_batch}"
    layout = f"[layout]\ndp = 8\ntp = 1\npp = 1\nzero = 1\nrecompute = '{recompute}'"
    answer = meshwright.memory(job(tmp_path, SEVEN, A100.format(gpus=8), batch, layout))
    (stage,) = answer["stages"]
    parts = stage["parts_gib"]
    assert stage["verdict"] == verdict
    assert answer["fits"] is (verdict != "does not fit")
    assert sum(parts[kind] for kind in ("weights", "gradients", "master", "optimizer")) == pytest.approx(47.1, rel=0.01)
    derived = sum(size for kind, size in parts.items() if kind not in ("reserve", "context", "communication"))
    assert derived == pytest.approx(about_gib, rel=0.05)
    if recompute == "none":
        assert parts["activations"] == pytest.approx(37.5 * micro_batch / 2, rel=0.10)
    assert parts["logits"] == pytest.approx(2.4 * micro_batch / 2, rel=0.03)
