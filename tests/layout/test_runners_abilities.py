"""Offload, loss chunks, whole logits, padding, exchanges and uneven experts: who has what."""

from dataclasses import replace

import pytest

from meshwright.layout.degrees import Layout
from meshwright.layout.partition import even_stages
from meshwright.layout.runners import refusals
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training

ARCH = Architecture("m", "llama", 8, 256, 8, 4, 32, 768, 2048)
OTHERS = ("megatron", "torchtitan", "deepspeed")


def refused(
    arch: Architecture = ARCH, training: Training | None = None, **values: object
) -> dict[str, tuple[str, ...]]:
    layout = replace(Layout(even_stages(arch, 1), (0,)), **values)  # type: ignore[arg-type]
    return refusals(arch, training or Training(), layout)


@pytest.mark.parametrize(("offload", "zero", "runners"), [
    ("none", 0, {"megatron", "torchtitan", "deepspeed"}),
    ("optimizer", 0, set()),  # Megatron's comes with the distributed optimizer, DeepSpeed's with ZeRO
    ("optimizer", 1, {"megatron", "deepspeed"}),
    ("optimizer", 3, {"megatron", "deepspeed"}),
    ("parameters", 3, {"torchtitan", "deepspeed"}),  # FSDP moves parameters, gradients and states
])  # fmt: skip
def test_offload(offload: str, zero: int, runners: set[str]) -> None:
    found = refused(dp=8, zero=zero, offload=offload)
    assert {name for name in OTHERS if not found[name]} == runners


def test_loss_chunks_and_padding() -> None:
    found = refused(dp=8, zero=3, loss_chunk=512)
    assert {name for name in OTHERS if not found[name]} == {"torchtitan"}
    found = refused(replace(ARCH, vocab=2001), dp=8, zero=3, vocab_multiple=128)
    assert {name for name in OTHERS if not found[name]} == {"megatron"}
    assert not refused(dp=8, zero=3, vocab_multiple=128)["torchtitan"]  # 2048 is such a multiple already


def test_whole_logits_matter_in_a_tensor_group_only() -> None:
    assert all(not refused(dp=8, zero=3, vocab_parallel=False)[name] for name in OTHERS)
    found = refused(tp=4, dp=2, sp=True, zero=3, vocab_parallel=False)
    assert any("divides logits" in reason for reason in found["megatron"])
    assert any("divides logits" in reason for reason in found["torchtitan"])


@pytest.mark.parametrize(("zero", "exchange"), [(0, "micro-batch"), (1, "micro-batch"), (2, "step"), (3, "step")])
def test_unusual_exchanges(zero: int, exchange: str) -> None:
    found = refused(dp=8, zero=zero, gradient_exchange=exchange)
    assert all(
        any("exchange gradients" in reason or "has no ZeRO" in reason for reason in found[name]) for name in OTHERS
    )
    usual = refused(dp=8, zero=zero)
    stated = refused(dp=8, zero=zero, gradient_exchange="step" if zero < 2 else "micro-batch")
    assert stated == usual


def test_experts_are_spread_evenly_by_all() -> None:
    moe = replace(ARCH, family="mixtral", experts=30, active_experts=2)
    even, uneven = refused(moe, dp=10, ep=10), refused(moe, dp=8, ep=8)
    assert not even["megatron"]
    assert uneven["megatron"] == ("spreads experts evenly, and 30 on 8 ranks are not even",)
