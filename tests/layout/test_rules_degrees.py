"""Degrees that do not divide, and what is said about them."""

from dataclasses import replace

import pytest

from meshwright.cluster.catalogue import device
from meshwright.layout import predicates
from meshwright.layout.rules import legal
from meshwright.model.training import Training

from .proposals import LLAMA, errors, found, on, propose, text, warnings


@pytest.mark.parametrize(("tp", "right"), [(1, True), (2, True), (4, False), (8, False)])
def test_key_value_heads(tp: int, right: bool) -> None:
    grouped = replace(LLAMA, kv_heads=2)
    asked = propose(grouped, tp=tp)
    assert legal(asked) == right
    if not right:
        said = text(found(asked)["kv-heads-divide"])
        assert f"2 KV heads are not divisible by {tp}" in said
        assert "layout.tp = 1, 2" in said
        assert errors(asked) == ["kv-heads-divide"]


def test_heads_that_do_not_divide() -> None:
    said = text(found(propose(replace(LLAMA, heads=52, kv_heads=52), tp=8))["heads-divide"])
    assert "52 mod 8 = 4" in said
    assert "layout.tp = 1, 2, 4 (13, 26, 52 exceed a node)" in said


def test_the_name_in_the_users_own_file() -> None:
    asked = replace(propose(tp=3), written={
        "layout.tp": ("--tensor-model-parallel-size", "user"), "model.heads": ("num_attention_heads", "file"),
    })  # fmt: skip
    assert found(asked)["heads-divide"].fields == ("--tensor-model-parallel-size", "num_attention_heads")
    assert found(asked)["heads-divide"].legal[0].startswith("--tensor-model-parallel-size = ")


def test_only_what_was_typed_is_named() -> None:
    asked = replace(propose(dp=3), written={
        "layout.dp": ("layout.dp", "user"), "layout.tp": ("layout.tp", "default"),
        "cluster.gpus": ("cluster.gpus", "detected"),
    })  # fmt: skip
    assert found(asked)["world-size"].fields == ("layout.dp", "cluster.gpus")
    assert "detected on this machine" in found(asked)["world-size"].message


def test_sequences_that_cannot_be_cut() -> None:
    asked = propose(seq_len=4097, tp=4, sp=True)
    assert errors(asked) == ["sequence-divides"]
    assert "4096 or 4100" in text(found(asked)["sequence-divides"])
    assert legal(propose(seq_len=4097, tp=4, sp=False))
    assert predicates.sequence_multiple(4, 2, True) == 16
    assert (
        "18 equal slices"
        in found(propose(cluster=on(9), seq_len=4096, tp=3, cp=3, sp=True))["sequence-divides"].message
    )


@pytest.mark.parametrize(("tp", "rows"), [(1, 250752), (2, 250880), (4, 250880), (8, 250880)])
def test_padded_vocabulary(tp: int, rows: int) -> None:
    assert predicates.padded_vocab(250682, tp) == rows
    asked = propose(replace(LLAMA, vocab=250682), tp=tp)
    assert ("padded-vocabulary" in warnings(asked)) == (tp in (4, 8))
    if tp == 8:
        assert "250880" in found(asked)["padded-vocabulary"].message


def test_experts() -> None:
    asked = propose(replace(LLAMA, layers=2, experts=30, active_experts=2), ep=8, dp=8)
    assert errors(asked) == []
    assert "30 mod 8 = 6" in found(asked)["experts-uneven"].message
    assert found(asked)["experts-uneven"].legal == ("layout.ep = 6 or 10",)
    assert errors(propose(ep=2, dp=8)) == ["experts-divide"]
    moe = replace(LLAMA, layers=4, experts=8, active_experts=2)
    assert legal(propose(moe, ep=4, dp=4, cp=1, tp=1, pp=2))
    assert errors(propose(moe, ep=8, dp=4, cp=1, tp=1, pp=2)) == ["expert-ranks"]


def test_precision_shard_group_and_zero() -> None:
    assert errors(propose(training=Training(precision="fp8"))) == ["precision"]
    assert legal(propose(training=Training(precision="fp8"), cluster=on(8, device=device("H100-80GB-SXM"))))
    assert errors(propose(dp=8, zero=3, shard_group=3)) == ["shard-group"]
    assert legal(propose(dp=8, zero=3, shard_group=4))
    assert errors(propose(zero=4)) == ["zero-stage"]
