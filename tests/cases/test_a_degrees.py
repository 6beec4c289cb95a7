"""Cases of kind A about degrees, sequences and vocabularies: the planner's part."""

from pathlib import Path

import pytest

from .jobs import check, job, rules, said, warned

A100 = 'gpu = "A100-80GB-SXM"\ngpus = 8'


@pytest.mark.parametrize(("tp", "right"), [(1, True), (2, True), (4, False), (8, False)])
def test_a3_more_tensor_ranks_than_kv_heads(tmp_path: Path, tp: int, right: bool) -> None:
    file = job(tmp_path, "layers = 4\nhidden = 1024\nheads = 16\nkv_heads = 2\nvocab = 32000", A100,
               "global = 64\nseq_len = 1024", f"[layout]\ntp = {tp}")  # fmt: skip
    answer = check(file)
    assert answer["valid"] is right
    if not right:
        (problem,) = answer["problems"]
        assert "layout.tp" in problem["fields"]
        assert "model.kv_heads" in problem["fields"]
        assert f"2 KV heads are not divisible by {tp} tensor ranks" in problem["message"]
        assert problem["legal"] == ["layout.tp = 1, 2"]
        assert "a copy of one on each rank would hold" in problem["message"]


def test_a3_52_heads_on_8_ranks(tmp_path: Path) -> None:
    file = job(tmp_path, "layers = 4\nhidden = 6656\nheads = 52\nvocab = 32000", A100, "global = 64\nseq_len = 1024")
    answer = check(file, "layout.tp=8")
    assert rules(answer) == ["heads-divide"]
    assert "52 mod 8 = 4" in said(answer, "heads-divide")
    assert "layout.tp = 1, 2, 4 (13, 26, 52 exceed a node)" in said(answer, "heads-divide")


LLAMA = "layers = 4\nhidden = 1024\nheads = 16\nvocab = {vocab}"


def test_a9_sequence_and_sequence_parallelism(tmp_path: Path) -> None:
    file = job(tmp_path, LLAMA.format(vocab=32000), A100, "global = 64\nseq_len = 4097", "[layout]\ntp = 4\nsp = true")
    answer = check(file)
    assert rules(answer) == ["sequence-divides"]
    assert "batch.seq_len = 4096 or 4100" in said(answer, "sequence-divides")
    assert check(file, "batch.seq_len=4100")["valid"] is True
    assert check(file, "layout.sp=false")["valid"] is True


def test_a9_context_degree_doubles_the_multiple(tmp_path: Path) -> None:
    file = job(tmp_path, LLAMA.format(vocab=32000), A100, "global = 64\nseq_len = 4100", "[layout]\ntp = 4\nsp = true")
    answer = check(file, "layout.cp=2")
    assert "2 · cp 2 · tp 4 (sequence parallelism) = 16" in said(answer, "sequence-divides")
    assert "4096 or 4112" in said(answer, "sequence-divides")
    assert "4100 or 4104" in said(
        check(file, "layout.cp=2", "layout.sp=false", "batch.seq_len=4102"), "sequence-divides"
    )


@pytest.mark.parametrize(("tp", "rows"), [(1, 250752), (2, 250880), (4, 250880), (8, 250880)])
def test_a9_padded_vocabulary(tmp_path: Path, tp: int, rows: int) -> None:
    file = job(tmp_path, LLAMA.format(vocab=250682), A100, "global = 64\nseq_len = 1024",
               f"[layout]\ntp = {tp}\nvocab_multiple = 128")  # fmt: skip
    answer = check(file)
    assert answer["valid"] is True
    assert f"{rows} rows" in said(answer, "padded-vocabulary")
    assert "the true size has to be recorded" in said(answer, "padded-vocabulary")
    assert "padded-vocabulary" not in warned(check(file, f"model.vocab={rows}"))
