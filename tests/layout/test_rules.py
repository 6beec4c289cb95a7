"""All rules together: silence about sound plans, and no crash about any."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.layout import predicates
from meshwright.layout.degrees import RECOMPUTE, SCHEDULES
from meshwright.layout.neighbours import neighbours
from meshwright.layout.partition import even_stages
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules import RULES, judge, legal
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import units_of

from .proposals import LLAMA, on, propose

NOT_LEGALITY = {"states-exceed-memory", "cluster-too-small"}  # errors about memory: `legal` does not judge it

SEVEN = Architecture("7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)
SEVENTY = Architecture("70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256)
H100 = Cluster(device("H100-80GB-SXM"), 256, 8, link("nvlink4"), link("ib-ndr"), 79 * 2**30)


@pytest.mark.parametrize("sound", [
    propose(),
    propose(dp=8),
    propose(dp=8, tp=1, pp=1, cp=1, zero=1, micro_batch=4, recompute="none", schedule="1f1b"),
    propose(SEVEN, replace(H100, gpus=64), 1024, 4096, dp=64, tp=1, pp=1, cp=1, zero=3, micro_batch=2),
    propose(SEVENTY, H100, 1024, 4096, dp=8, tp=8, pp=4, cp=1, sp=True, zero=1, micro_batch=1, schedule="1f1b",
            recompute="selective", stages=even_stages(SEVENTY, 4)),
    propose(SEVENTY, H100, 1024, 4096, dp=8, tp=8, pp=4, cp=1, sp=True, zero=1, micro_batch=1, vpp=5,
            schedule="interleaved", recompute="selective"),
    propose(SEVENTY, H100, 512, 131072, dp=4, tp=8, pp=1, cp=8, sp=True, zero=3, micro_batch=1),
])  # fmt: skip
def test_nothing_is_said_about_a_sound_plan(sound: Proposal) -> None:
    assert judge(sound) == ()
    assert legal(sound)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_proposal_is_judged_without_a_crash(data: st.DataObject) -> None:
    arch = replace(
        LLAMA, layers=2, kv_heads=data.draw(st.sampled_from([1, 4, 16])), experts=data.draw(st.sampled_from([0, 6])),
        active_experts=1, parallel_residual=data.draw(st.booleans()),
    )  # fmt: skip
    names = [unit.name for unit in units_of(arch)]
    degree = st.none() | st.integers(0, 9)
    keys = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "zero", "shard_group", "micro_batch", "micro_batches")
    wanted: dict[str, object] = {name: data.draw(degree, name) for name in keys}
    wanted["sp"] = data.draw(st.none() | st.booleans())
    wanted["schedule"] = data.draw(st.none() | st.sampled_from(SCHEDULES))
    wanted["recompute"] = data.draw(st.none() | st.sampled_from(RECOMPUTE))
    stage = st.lists(st.sampled_from([*names, "layers.9"]), max_size=5).map(tuple)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(names)), max_size=3)))
    right = tuple(tuple(names[a:b]) for a, b in pairwise([0, *cuts, len(names)]))
    wanted["stages"] = data.draw(st.none() | st.just(right) | st.lists(stage, max_size=4).map(tuple))
    wanted["placement"] = data.draw(st.none() | st.lists(st.integers(0, 3), max_size=4).map(tuple))
    wanted["gradient_exchange"] = data.draw(st.sampled_from([None, "step", "micro-batch"]))
    wanted["offload"] = data.draw(st.sampled_from([None, "none", "optimizer", "parameters"]))
    wanted["vocab_parallel"] = data.draw(st.none() | st.booleans())
    for name in ("loss_chunk", "vocab_multiple", "recompute_layers"):
        wanted[name] = data.draw(st.none() | st.integers(0, 300), name)
    training = Training(
        task=data.draw(st.sampled_from(["pretrain", "lora"])), lora_rank=data.draw(st.integers(1, 4096)),
        precision=data.draw(st.sampled_from(["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"])),
        gradient_dtype=data.draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        loss_scale=data.draw(st.none() | st.just(128.0)),
        expert_imbalance=data.draw(st.floats(1, 9)), lora_targets=data.draw(st.sampled_from(["attention", "all"])),
    )  # fmt: skip
    claims = {
        "model_exceeds_one_gpu": "true",
        "layer_exceeds_one_gpu": "true",
        "within_stage": "attention | feed-forward",
    }
    asked = replace(
        propose(
            arch, on(data.draw(st.integers(1, 12))), data.draw(st.integers(1, 40)), training=training, **wanted
        ), claims=claims,
    )  # fmt: skip
    problems = judge(asked)
    assert all(problem.message and problem.fields for problem in problems)
    assert not legal(asked) or all(p.rule in NOT_LEGALITY or p.severity == "warning" for p in problems)
    if "at-least-one" not in {problem.rule for problem in problems}:
        assert all(legal(replace(asked, wanted=near)) for near in neighbours(asked))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_legal_agrees_with_judge(data: st.DataObject) -> None:
    degree = st.none() | st.sampled_from([1, 2, 3, 4, 8])
    wanted = {name: data.draw(degree, name) for name in ("dp", "tp", "pp", "cp", "micro_batch", "micro_batches", "vpp")}
    wanted |= {"schedule": data.draw(st.none() | st.sampled_from(["1f1b", "interleaved", "zb-h1", "zbv", "dualpipev"]))}
    asked = propose(replace(LLAMA, kv_heads=4), batch=data.draw(st.integers(1, 64)), **wanted)
    broken = {problem.rule for problem in judge(asked) if problem.severity == "error"}
    assert legal(asked) == (not broken - NOT_LEGALITY)


def test_predicates_take_arrays() -> None:
    dp, tp = np.array([1, 2, 4]), np.array([8, 4, 3])
    assert predicates.world_matches(dp, tp, 1, 1, 8).tolist() == [True, True, False]
    assert predicates.heads_split(16, 4, tp).tolist() == [False, True, False]


def test_rule_names_are_unique_and_errors_come_first() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    severities = [rule.severity for rule in RULES]
    assert severities == sorted(severities)
