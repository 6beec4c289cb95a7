"""What runs, but wastes time or memory."""

from dataclasses import replace
from itertools import pairwise

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.layout.partition import balance
from meshwright.layout.rules import legal
from meshwright.layout.rules_stages import work_of
from meshwright.model.architecture import Architecture
from meshwright.model.propose import from_count
from meshwright.model.units import units_of

from .proposals import LLAMA, errors, found, on, propose, warnings


def test_sharding_a_model_that_fits() -> None:
    arch = from_count(1_000_000_000)
    asked = propose(
        arch, cluster=on(4, gpus_per_node=4), dp=4, tp=1, pp=1, cp=1, zero=3, micro_batch=2, recompute="full"
    )
    said = found(asked)["needless-sharding"].message
    assert "32 micro-batches" in said
    moved = 32 * (2 + 2 + 4) * 1e9 * 3 / 4 / 1e9  # bf16 weights twice, fp32 gradients once
    assert abs(float(said.split(": ")[-1].split(" GB")[0]) - moved) < 0.03 * moved
    assert "6 GB for one exchange" in said
    assert "needless-sharding" not in found(replace(asked, cluster=on(4, memory_bytes=16 * 2**30)))


def test_a_pipeline_that_memory_does_not_ask_for() -> None:
    neox = Architecture("20b", "gpt_neox", 44, 6144, 64, 64, 96, 24576, 50432, gated=False, parallel_residual=True)
    cluster = Cluster(device("A100-80GB-SXM"), 128, 8, link("nvlink3"), link("ib-hdr"), 80 * 2**30)
    asked = propose(neox, cluster, 64, 4096, tp=2, pp=4, cp=1, dp=16, recompute="full", micro_batch=4)
    assert "75.0%" in found(asked)["few-micro-batches"].message
    assert "dp 64 · tp 2" in found(asked)["needless-pipeline"].message
    assert "needless-tensor" not in found(replace(asked, cluster=replace(cluster, memory_bytes=40 * 2**30)))
    assert "needless-pipeline" not in found(replace(asked, cluster=replace(cluster, memory_bytes=40 * 2**30)))


def test_states_that_cannot_fit() -> None:
    seven = Architecture("7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)
    asked = propose(seven, dp=8, tp=1, pp=1, cp=1, zero=0)
    assert errors(asked) == ["states-exceed-memory"]
    assert "= 113 GiB of states" in found(asked)["states-exceed-memory"].message  # 6.738e9 · 18 B
    assert legal(asked)  # legal says that it can run, on some memory
    assert errors(replace(asked, wanted=replace(asked.wanted, zero=3))) == []


def test_uneven_stages_are_named_with_a_better_partition() -> None:
    arch = replace(LLAMA, layers=8)
    names = tuple(unit.name for unit in units_of(arch))
    asked = propose(arch, cluster=on(4), pp=4, stages=(names[:3], names[3:5], names[5:7], names[7:]))
    said = found(asked)["uneven-stages"]
    assert said.message.startswith("stage 3 (layers.3-7, head)")
    assert said.legal[0].startswith("layout.stages = [[")
    better = balance(names, work_of(arch, 2048), 4)
    assert "uneven-stages" not in found(replace(asked, wanted=replace(asked.wanted, stages=better)))


def test_the_heavy_end_of_a_large_vocabulary() -> None:
    bloom = Architecture(
        "176b", "bloom", 70, 14336, 112, 112, 128, 57344, 250880, gated=False, tied=True, norm="layer",
        qkv_bias=True, attention_out_bias=True, ffn_bias=True, positions="alibi", embed_norm=True,
    )  # fmt: skip
    cluster = Cluster(device("A100-80GB-SXM"), 384, 8, link("nvlink3"), link("ib-hdr"), 80 * 2**30)
    names = tuple(unit.name for unit in units_of(bloom))

    def cut(*layers: int) -> tuple[tuple[str, ...], ...]:
        ends = [0, *(1 + 2 * sum(layers[: i + 1]) for i in range(len(layers) - 1)), len(names)]
        return tuple(names[a:b] for a, b in pairwise(ends))

    heavy = propose(bloom, cluster, 2048, 2048, dp=8, tp=4, pp=12, cp=1, stages=cut(6, *[6] * 10, 4))
    assert "pipeline rank 0 is the heaviest" in found(heavy)["heaviest-stage"].message
    good = replace(heavy, wanted=replace(heavy.wanted, stages=cut(5, *[6] * 10, 5)))
    assert "heaviest-stage" not in found(good)


def test_tensor_groups_across_nodes_and_nothing_to_shard() -> None:
    assert "tensor-across-nodes" in warnings(propose(cluster=on(32), tp=16))
    assert "tensor-across-nodes" not in warnings(propose(cluster=on(32), tp=8))
    assert "nothing-to-shard" in warnings(propose(cluster=on(1), dp=1, tp=1, pp=1, cp=1, zero=1))


def test_recompute_that_is_not_needed() -> None:
    roomy = propose(dp=8, tp=1, pp=1, cp=1, micro_batch=1, recompute="full", zero=1)
    assert "needless-recompute" in warnings(roomy)
    crowded = replace(roomy, wanted=replace(roomy.wanted, micro_batch=16))
    assert "needless-recompute" not in warnings(crowded)
