"""Padding, whole logits, loss chunks, and settings that change nothing."""

from dataclasses import replace

import pytest

from meshwright.layout.partition import even_stages

from .proposals import LLAMA, errors, found, propose, text, warnings


@pytest.mark.parametrize(("vocab", "tp", "multiple", "rows"), [
    (50257, 1, 128, 50304), (50257, 8, 128, 51200), (32000, 1, 128, None), (32000, 8, None, None),
    (50257, 2, None, 50258), (50257, 1, None, None), (250682, 4, 128, 250880),
])  # fmt: skip
def test_padded_rows(vocab: int, tp: int, multiple: int | None, rows: int | None) -> None:
    asked = propose(replace(LLAMA, vocab=vocab), tp=tp, vocab_multiple=multiple)
    assert errors(asked) == []
    assert ("padded-vocabulary" in warnings(asked)) == (rows is not None)
    if rows is not None:
        assert f"{rows} rows" in found(asked)["padded-vocabulary"].message


def test_whole_logits_on_every_tensor_rank() -> None:
    """8192 tokens, vocabulary 32,000: 2 B, an fp32 copy and an fp32 gradient are 2.44 GiB, an eighth of it 0.31."""
    asked = propose(tp=8, dp=1, pp=1, cp=1, micro_batch=4, vocab_parallel=False)
    said = text(found(asked)["whole-logits"])
    assert f"{8192 * 32000 * 10 / 2**30:.2f} GiB" in said
    assert f"{8192 * 4000 * 10 / 2**20:.1f} MiB" in said or f"{8192 * 4000 * 10 / 2**30:.2f} GiB" in said
    assert "whole-logits" not in warnings(propose(tp=1, vocab_parallel=False))
    assert "whole-logits" not in warnings(propose(tp=8, vocab_parallel=True))


@pytest.mark.parametrize(("chunk", "words"), [
    (1024, None), (8192, "has no effect"), (10000, "has no effect"), (1000, "8 chunks of 1000 and one of 192"),
])  # fmt: skip
def test_loss_chunks(chunk: int, words: str | None) -> None:
    asked = propose(dp=8, tp=1, pp=1, cp=1, micro_batch=4, loss_chunk=chunk)
    assert ("loss-chunk" in warnings(asked)) == (words is not None)
    if words:
        assert words in found(asked)["loss-chunk"].message
    if chunk == 1000:
        assert "512 or 1024" in found(asked)["loss-chunk"].legal[0]
    assert "loss-chunk" not in warnings(propose(loss_chunk=chunk))  # the micro-batch is free


def test_full_recompute_of_more_layers_than_there_are() -> None:
    """22 layers on 2 stages are 11 each."""
    for k, idle in ((10, False), (11, True), (30, True)):
        asked = propose(pp=2, tp=1, dp=4, cp=1, recompute="full", recompute_layers=k)
        assert ("recompute-all-layers" in warnings(asked)) == idle
    stages = even_stages(LLAMA, 2, first=8)
    uneven = propose(pp=2, tp=1, dp=4, cp=1, recompute="full", recompute_layers=12, stages=stages)
    assert "recompute-all-layers" not in warnings(uneven)  # the second stage has 14
    assert errors(propose(recompute="none", recompute_layers=2)) == ["recompute-layers"]


def test_settings_without_effect() -> None:
    assert "sequence-parallel-alone" in warnings(propose(tp=1, sp=True))
    assert "sequence-parallel-alone" not in warnings(propose(tp=2, sp=True))
    assert "expert-tensor-without-experts" in warnings(propose(tp=2, etp=4))
    assert "expert-tensor-without-experts" not in warnings(propose(tp=2, etp=2))
