"""ZeRO, shard groups, gradient exchange and offload."""

from dataclasses import replace

import pytest

from meshwright.cluster.device import Device
from meshwright.layout.degrees import Layout
from meshwright.model.parameters import total_parameters
from meshwright.model.training import Training

from .proposals import A100, LLAMA, errors, found, on, propose, text, warnings

SEVEN = replace(LLAMA, layers=32, hidden=4096, heads=32, kv_heads=32, ffn_hidden=11008)


def test_shard_groups_divide_the_replicas() -> None:
    asked = propose(dp=8, cp=1, zero=3, shard_group=3)
    assert errors(asked) == ["shard-group"]
    assert "8 mod 3 = 2" in found(asked)["shard-group"].message
    assert "1, 2, 4, 8" in found(asked)["shard-group"].legal[0]
    assert errors(propose(tp=1, pp=1, cp=1, zero=3, shard_group=3)) == ["shard-group"]  # dp = 8 follows
    assert errors(propose(tp=1, zero=3, shard_group=3)) == []  # dp is open
    assert errors(propose(cluster=on(16, gpus_per_node=8), dp=4, cp=4, tp=1, pp=1, zero=3, shard_group=8)) == []


@pytest.mark.parametrize(("tp", "group", "inside"), [(1, 8, True), (2, 4, True), (2, 8, False), (1, 16, False)])
def test_shard_groups_that_leave_the_node(tp: int, group: int, inside: bool) -> None:
    asked = propose(SEVEN, cluster=on(64), dp=64 // tp, tp=tp, pp=1, cp=1, zero=3, shard_group=group)
    assert ("shard-group-across-nodes" in warnings(asked)) == (not inside)
    if not inside:
        said = text(found(asked)["shard-group-across-nodes"])
        assert f"layout.shard_group = {', '.join(str(d) for d in (1, 2, 4, 8) if d * tp <= 8)}" in said
        assert "25 GB/s instead of 300 GB/s" in said  # HDR InfiniBand 200 Gbit/s; NVLink 3
    everything = replace(asked, wanted=replace(asked.wanted, shard_group=64 // tp))
    assert "shard-group-across-nodes" not in warnings(everything)  # that is plain ZeRO


def test_shard_groups_without_sharding() -> None:
    assert "shard-group-unsharded" in warnings(propose(dp=8, zero=0, shard_group=4))
    assert "shard-group-unsharded" not in warnings(propose(dp=8, zero=1, shard_group=4))


def test_d1_exchanging_gradients_in_each_micro_batch() -> None:
    """Four micro-batches: four times the volume, three quarters of it wasted."""
    asked = propose(batch=64, dp=8, tp=1, pp=1, cp=1, zero=1, micro_batch=2, gradient_exchange="micro-batch")
    said = text(found(asked)["exchange-each-micro-batch"])
    assert "4 micro-batches: 4× the volume" in said
    assert "3 of 4 = 75.0% of it is wasted" in said
    assert "layout.gradient_exchange = step" in said
    for harmless in (
        propose(batch=16, dp=8, tp=1, pp=1, cp=1, zero=1, micro_batch=2, gradient_exchange="micro-batch"),
        propose(batch=64, dp=8, tp=1, pp=1, cp=1, zero=1, micro_batch=2, gradient_exchange="step"),
        propose(batch=64, dp=8, tp=1, pp=1, cp=1, zero=2, micro_batch=2, gradient_exchange="micro-batch"),
        propose(batch=64, dp=8, tp=1, pp=1, cp=1, zero=1, micro_batch=2),
    ):  # fmt: skip
        assert "exchange-each-micro-batch" not in warnings(harmless)


def test_the_volume_of_each_exchange() -> None:
    """A ring all-reduce sends 2 (n - 1) / n of the gradient: 4 B a parameter in fp32."""
    asked = propose(batch=64, dp=8, tp=1, pp=1, cp=1, zero=0, micro_batch=2, gradient_exchange="micro-batch")
    once = 2 * 4 * total_parameters(LLAMA) * 7 / 8 / 2**30
    assert f"{4 * once:.2f} GiB a step and device instead of {once:.2f} GiB" in text(
        found(asked)["exchange-each-micro-batch"]
    )


@pytest.mark.parametrize(("dtype", "whole"), [("bf16", 2), ("fp32", 4)])
def test_b8_accumulating_without_reducing_keeps_a_whole_gradient(dtype: str, whole: int) -> None:
    """2 to 4 B a parameter: 12.55 or 25.10 GiB of a Llama-7B (6.738 B parameters)."""
    cluster = on(64, memory_bytes=80 * 2**30)
    training = Training(gradient_dtype=dtype)  # type: ignore[arg-type]
    asked = propose(SEVEN, cluster, 128, 32768, training, dp=64, tp=1, pp=1, cp=1, zero=3, micro_batch=1,
                    gradient_exchange="step")  # fmt: skip
    gib = total_parameters(SEVEN) * whole / 2**30
    said = text(found(asked)["whole-gradient"])
    assert f"whole on every rank until then: {gib:.2f} GiB ({whole} B a parameter)" in said
    assert "2 times a step" in said
    once = replace(asked, global_batch=64)
    assert "whole-gradient" not in warnings(once)
    assert "whole-gradient" not in warnings(replace(asked, wanted=replace(asked.wanted, gradient_exchange=None)))
    assert Layout(((),), (0,), zero=3).exchange == "micro-batch"


def test_offloaded_parameters_need_zero_3() -> None:
    assert errors(propose(dp=8, zero=2, offload="parameters")) == ["offload-needs-sharding"]
    assert "layout.zero = 3" in found(propose(zero=0, offload="parameters"))["offload-needs-sharding"].legal
    assert errors(propose(dp=8, zero=3, offload="parameters")) == []
    assert errors(propose(dp=8, offload="parameters")) == []  # zero is free
    for zero in range(4):
        assert errors(propose(dp=8, zero=zero, offload="optimizer")) == []


def test_offload_on_a_cpu_moves_nothing() -> None:
    cpu = Device(
        "cpu", "cpu", 2**34, {}, A100.device.memory_bandwidth, A100.device.launch_s, A100.device.reserved_bytes
    )
    asked = propose(cluster=on(8, device=cpu), dp=8, tp=1, pp=1, cp=1, offload="optimizer")
    assert "offload-on-cpu" in warnings(asked)
    assert "offload-on-cpu" not in warnings(propose(dp=8, tp=1, pp=1, cp=1, offload="optimizer"))


def test_offload_that_is_not_needed_and_states_that_fit_by_it() -> None:
    roomy = propose(dp=8, tp=1, pp=1, cp=1, micro_batch=1, zero=1, offload="optimizer")
    assert "needless-offload" in warnings(roomy)
    tight = propose(SEVEN, dp=8, tp=1, pp=1, cp=1, micro_batch=1, zero=0)
    assert errors(tight) == ["states-exceed-memory"]
    offloaded = replace(
        tight, wanted=replace(tight.wanted, offload="optimizer"), training=Training(gradient_dtype="bf16")
    )
    assert errors(offloaded) == []  # 4 of 16 B a parameter stay: 25 GiB


def test_frozen_weights_have_no_states() -> None:
    asked = propose(SEVEN, dp=8, tp=1, pp=1, cp=1, micro_batch=1, zero=0, training=Training(task="lora"))
    assert errors(asked) == []  # 2 B a parameter
    assert "exchange-each-micro-batch" not in warnings(
        replace(asked, wanted=replace(asked.wanted, gradient_exchange="micro-batch"))
    )


def test_one_replica_has_nobody_to_share_with() -> None:
    alone = propose(cluster=on(1), dp=1, tp=1, pp=1, cp=1, zero=1, gradient_exchange="step")
    assert {"nothing-to-shard", "exchange-with-nobody"} <= set(warnings(alone))


def test_a_cluster_that_is_too_small_says_how_many_devices_would_do() -> None:
    large = replace(LLAMA, layers=80, hidden=8192, heads=64, kv_heads=64, ffn_hidden=28672)
    asked = propose(large)
    assert errors(asked) == ["cluster-too-small"]
    least = 16 * total_parameters(large) / (40 * 2**30)
    assert f"cluster.gpus = {int(least) + 1} or more" in text(found(asked)["cluster-too-small"])
    assert errors(propose(large, cluster=on(int(least) + 1))) == []
