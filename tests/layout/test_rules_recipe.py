"""The training recipe: precision and device, gradients, loss scale, adapters."""

from dataclasses import replace

import pytest

from meshwright.cluster.catalogue import device
from meshwright.cluster.topology import Part
from meshwright.layout.rules_recipe import GRADIENT_DTYPES, PRECISIONS, adapted_sides
from meshwright.model.training import Training

from .proposals import A100, LLAMA, errors, found, on, propose, text, warnings


def test_a_device_says_what_it_computes_in() -> None:
    asked = propose(training=Training(precision="fp8"))
    assert errors(asked) == ["precision"]
    said = text(found(asked)["precision"])
    assert "A100-40GB-SXM has no matrix units for fp8" in said
    assert "bf16 312" in said  # NVIDIA A100 data sheet, dense
    assert "training.precision = fp32, fp16, bf16" in said
    assert errors(propose(training=Training(precision="fp8"), cluster=on(8, device=device("H100-80GB-SXM")))) == []


def test_bf16_on_v100() -> None:
    asked = propose(cluster=on(8, device=device("V100-32GB-SXM")))
    assert errors(asked) == ["precision"]
    assert "training.precision = fp32, fp16" in text(found(asked)["precision"])


def test_every_kind_of_device_of_a_mixed_cluster_counts() -> None:
    parts = tuple(
        Part(device(name), 4, 4, A100.intra, 40 * 2**30) for name in ("H100-80GB-SXM", "A100-40GB-SXM")
    )  # fmt: skip
    mixed = replace(A100, device=device("H100-80GB-SXM"), parts=parts)
    assert errors(propose(cluster=mixed, training=Training(precision="fp8"))) == ["precision"]
    assert errors(propose(cluster=mixed)) == []


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_gradients_go_with_the_precision(precision: str, dtype: str) -> None:
    cluster = on(8, device=device("B200"))
    training = Training(precision=precision, gradient_dtype=dtype)  # type: ignore[arg-type]
    asked = propose(cluster=cluster, training=training)
    legal = dtype in GRADIENT_DTYPES[precision]  # type: ignore[index]
    assert ("gradient-dtype" in errors(asked)) == (not legal)
    assert legal or "training.gradient_dtype = fp32" in text(found(asked)["gradient-dtype"])
    assert GRADIENT_DTYPES["fp32"] == ("fp32",)
    assert "fp16" not in GRADIENT_DTYPES["bf16"]


def test_a_loss_scale_belongs_to_fp16() -> None:
    assert errors(propose(training=Training(precision="bf16", loss_scale=1024.0))) == ["loss-scale"]
    assert "1024" in found(propose(training=Training(loss_scale=1024.0)))["loss-scale"].message
    assert errors(propose(training=Training(precision="fp16", loss_scale=1024.0))) == []
    assert errors(propose(training=Training(precision="fp16"))) == []  # dynamic


def test_an_adapter_is_smaller_than_what_it_adapts() -> None:
    grouped = replace(LLAMA, kv_heads=2)  # k and v are 256 × 2048
    for rank, right in ((16, True), (256, True), (257, False)):
        asked = propose(grouped, training=Training(task="lora", lora_rank=rank))
        assert (errors(asked) == []) == right
    said = text(found(propose(grouped, training=Training(task="lora", lora_rank=512)))["lora-rank"])
    assert "the shorter side of k.weight is 256" in said
    assert "training.lora_rank from 1 to 256" in said


def test_adapters_of_attention_leave_the_rest_alone() -> None:
    attention = adapted_sides(LLAMA, Training(task="lora", lora_targets="attention"))
    assert set(attention) == {"q.weight", "k.weight", "v.weight", "o.weight"}
    moe = replace(LLAMA, experts=8, active_experts=2)
    everything = adapted_sides(moe, Training(task="lora"))
    assert "router.weight" not in everything
    assert everything["experts.down.weight"] == 2048
    parallel = replace(LLAMA, parallel_residual=True)
    assert adapted_sides(parallel, Training(task="lora", lora_targets="attention")) == attention


def test_adapters_without_the_task_do_nothing() -> None:
    assert "adapters-unused" in warnings(propose(training=Training(lora_rank=64)))
    assert "adapters-unused" not in warnings(propose(training=Training(task="lora", lora_rank=64)))
    assert "adapters-unused" not in warnings(propose())


def test_eight_bit_products_take_multiples_of_16() -> None:
    h100 = on(8, device=device("H100-80GB-SXM"))
    eighth = Training(precision="fp8")
    assert "padded-eighths" not in warnings(propose(cluster=h100, training=eighth, tp=8, micro_batch=1, cp=1))
    odd = propose(cluster=h100, training=eighth, tp=1, cp=1, seq_len=2050, micro_batch=1)
    said = text(found(odd)["padded-eighths"])
    assert "tokens of a micro-batch 2050 (mod 16 = 2)" in said
    assert "2048 or 2064" in said
    assert "padded-eighths" not in warnings(replace(odd, training=Training()))
