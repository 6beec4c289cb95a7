"""A failed request is matched with the tensors of the plan, and what matches nothing is said to."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.topology import Part
from meshwright.planner.oom import Explanation, explain, tensors_of_plan
from meshwright.planner.oom_request import parse_request

from .memory_plans import pipeline, seven_b
from .test_oom_request import printed

MIB = 2**20


def names(found: Explanation) -> dict[str, tuple[int, ...]]:
    return {match.tensor.name: match.tensor.shape for match in found.matches}


def test_the_widest_activation_of_a_7b_is_named_with_its_shape() -> None:
    """2 samples of 4096 tokens, 11008 wide, in 2 bytes: 172 MiB; a matrix of 4096 x 11008 in 4 bytes is as large."""
    found = explain(seven_b(), parse_request("172.00 MiB"))
    assert names(found)["gate, up, activated gate or product"] == (2, 4096, 11008)
    assert {"gradient of gate.weight", "gradient of up.weight", "gradient of down.weight"} <= set(names(found))
    widest = next(m.tensor for m in found.matches if m.tensor.name.startswith("gate, up"))
    assert (widest.units, widest.dtype, widest.ranks) == (("ffn",), "bf16", (0,))
    assert "batch.micro_batch = 1" in widest.shrink
    assert all(match.exact for match in found.matches)


def test_scores_that_the_plan_does_not_expect_come_last_and_say_so() -> None:
    """32 heads of 4096 x 4096 scores in 2 bytes, 2 samples: 2 GiB. Only attention that is not fused has them."""
    found = explain(seven_b(), parse_request("2.00 GiB"))
    scores = found.matches[-1].tensor
    assert (scores.name, scores.shape, scores.expected) == ("attention scores", (2, 32, 4096, 4096), False)
    assert "fused attention" in scores.shrink


def test_nothing_matches_and_the_nearest_are_named() -> None:
    found = explain(seven_b(), parse_request("786.00 MiB"))
    assert not found.matches
    # 32000 x 8192 fp32 scores (1000 MiB) and the same in bf16 (500 MiB) lie on either side.
    assert {tensor.name for tensor in found.nearest} & {"logits", "logits in fp32"}


def test_mb_matches_as_mib_where_that_is_what_was_meant() -> None:
    assert {match.read_as for match in explain(seven_b(), parse_request("172 MB")).matches} == {"MiB"}
    assert {match.read_as for match in explain(seven_b(), parse_request("180.36 MB")).matches} == {"MB"}


def test_a_device_of_one_node_names_its_pipeline_rank() -> None:
    plan = pipeline(4)
    line = "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of 39.39 GiB"
    found = explain(plan, parse_request(line.format("500.00 MiB", 3)))
    assert found.rank == 3
    first = found.matches[0].tensor
    assert (first.name, first.ranks) == ("logits in fp32", (3,))  # 4096 tokens x 32000 x 4 bytes
    assert explain(plan, parse_request(line.format("500.00 MiB", 9))).rank is None


def test_a_device_of_unlike_nodes_names_its_pipeline_rank_where_one_node_has_it() -> None:
    """Ranks 0-3 on a node of four, 4-5 and 6-7 on nodes of two: devices 2 and 3 are on the first node alone."""
    plan = pipeline(4)
    cluster = plan.setup.proposal.cluster
    unlike = replace(
        cluster, gpus=8, gpus_per_node=2,
        parts=(
            Part(cluster.device, 4, 4, cluster.intra, cluster.memory_bytes),
            Part(cluster.device, 4, 2, cluster.intra, cluster.memory_bytes),
        ),
    )  # fmt: skip
    proposal = replace(plan.setup.proposal, cluster=unlike)
    two = replace(plan, setup=replace(plan.setup, proposal=proposal), layout=replace(plan.layout, dp=2))
    line = "CUDA out of memory. Tried to allocate 500.00 MiB. GPU {} has a total capacity of 39.39 GiB"
    ranks = [explain(two, parse_request(line.format(gpu))).rank for gpu in (0, 2, 3, 4)]
    assert ranks == [None, 1, 1, None]


def test_sharded_moments_gathered_parameters_and_whole_gradients() -> None:
    plan = seven_b(zero=3, runnable_by="any")
    found = {tensor.name: tensor for tensor in tensors_of_plan(plan)}
    assert found["moment of gate.weight"].shape == (11008 // 8, 4096)
    assert found["whole gradient of gate.weight"].shape == (11008, 4096)
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096  # q, k, v, o; gate, up, down; two norms
    gathered = {t.shape for t in tensors_of_plan(plan) if t.name == "gathered parameters" and "layer" in t.units}
    assert gathered == {(layer,)}


def test_tensor_and_context_degrees_divide_what_they_divide() -> None:
    tensors = {t.name: t for t in tensors_of_plan(seven_b(dp=2, tp=2, cp=2, sp=True, zero=1))}
    assert tensors["q"].shape == (2, 2048, 16 * 128)
    assert tensors["hidden states"].shape == (2, 1024, 4096)
    assert tensors["gathered hidden states"].shape == (2, 2048, 4096)
    assert tensors["logits in fp32"].shape == (2, 2048, 16000)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(8, 1, 1), (4, 2, 1), (2, 4, 1), (2, 2, 2), (1, 8, 1)]), st.sampled_from([1, 2, 4]),
    st.sampled_from([512, 4096]), st.integers(0, 3), st.sampled_from(["bf16", "fp32"]), st.booleans(), st.data(),
)  # fmt: skip
def test_every_tensor_explains_the_message_it_would_cause(
    degrees: tuple[int, int, int], micro: int, seq_len: int, zero: int, precision: str, sp: bool, data: st.DataObject
) -> None:
    dp, tp, cp = degrees
    plan = seven_b(
        dp=dp, tp=tp, cp=cp, micro_batch=micro, seq_len=seq_len, zero=zero, precision=precision, sp=sp and tp > 1,
        runnable_by="any",
    )  # fmt: skip
    tensors = tensors_of_plan(plan)
    assert all(tensor.n_bytes > 0 and tensor.why and tensor.ranks == (0,) for tensor in tensors)
    one = data.draw(st.sampled_from(tensors))
    found = explain(plan, parse_request(f"CUDA out of memory. Tried to allocate {printed(one.block)}."))
    assert one in [match.tensor for match in found.matches]
    assert not found.nearest


@pytest.mark.parametrize("experts", [8, 64])
def test_dispatched_copies_of_experts(experts: int) -> None:
    plan = seven_b(seq_len=2048, runnable_by="any")
    from dataclasses import replace

    arch = replace(plan.setup.proposal.arch, experts=experts, active_experts=2, ffn_hidden=1408)
    proposal = replace(plan.setup.proposal, arch=arch)
    tensors = {t.name: t for t in tensors_of_plan(replace(plan, setup=replace(plan.setup, proposal=proposal)))}
    assert tensors["dispatched copies"].shape == (2 * 2048 * 2, 4096)
    assert tensors["router scores"].shape == (2 * 2048, experts)
    assert tensors["weight of experts.gate.weight"].shape == (experts, 1408, 4096)
