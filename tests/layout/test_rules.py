"""The rules: every public case about validity, the worked example, and silence about sound plans."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.layout import predicates
from meshwright.layout.batch import divisors
from meshwright.layout.degrees import RECOMPUTE, SCHEDULES
from meshwright.layout.neighbours import neighbours, plain
from meshwright.layout.partition import balance, even_stages
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules import RULES, judge, legal
from meshwright.layout.rules_stages import work_of
from meshwright.model.architecture import Architecture
from meshwright.model.propose import from_count
from meshwright.model.training import Training
from meshwright.model.units import units_of

LLAMA = Architecture("m", "llama", 22, 2048, 16, 16, 128, 5632, 32000)
A100 = Cluster(device("A100-40GB-SXM"), 8, 8, link("nvlink3"), link("ib-hdr"), 40 * 2**30)


def propose(
    arch: Architecture = LLAMA, cluster: Cluster = A100, batch: int = 256, seq_len: int = 2048,
    training: Training | None = None, **wanted: object,
) -> Proposal:  # fmt: skip
    return Proposal(arch, cluster, training or Training(), batch, seq_len, Wanted(**wanted))  # type: ignore[arg-type]


def on(gpus: int, **changes: object) -> Cluster:
    return replace(A100, gpus=gpus, **changes)  # type: ignore[arg-type]


def found(proposal: Proposal) -> dict[str, Problem]:
    return {problem.rule: problem for problem in judge(proposal)}


def errors(proposal: Proposal) -> list[str]:
    return [problem.rule for problem in judge(proposal) if problem.severity == "error"]


def warnings(proposal: Proposal) -> list[str]:
    return [problem.rule for problem in judge(proposal) if problem.severity == "warning"]


def text(problem: Problem) -> str:
    return f"{problem.message} | {'; '.join(problem.legal)}"


# The worked example


def as_written() -> Proposal:
    asked = propose(
        from_count(1_200_000_000), training=Training(precision="fp16"), dp=2, tp=2, pp=4, micro_batch=16,
        micro_batches=4, recompute="full",
    )  # fmt: skip
    return replace(asked, claims={
        "model_exceeds_one_gpu": "true", "dataset_must_fit_gpu": "true", "layer_exceeds_one_gpu": "true",
        "mixed_precision_shrinks_states": "true", "within_stage": "attention | feed-forward",
        "profilers": "Nsight Systems, NVIDIA Triton Profiler",
    })  # fmt: skip


def test_the_worked_example_has_exactly_two_errors() -> None:
    problems = found(as_written())
    assert errors(as_written()) == ["world-size", "batch-equation"]
    assert "4 stages × 2 GPUs × 2 replicas = 16 GPUs, not 8" in problems["world-size"].message
    assert problems["world-size"].legal == (
        "dp 1 · tp 2 · pp 4", "dp 2 · tp 1 · pp 4", "dp 2 · tp 2 · pp 2",
    )  # fmt: skip
    assert "2 groups × 16 samples × 4 micro-batches = 128, not 256" in problems["batch-equation"].message
    assert "8 micro-batches give 256" in problems["batch-equation"].legal


def test_the_worked_example_has_the_warnings_of_its_claims() -> None:
    problems = found(as_written())
    model = problems["claim-model-too-large"].message
    assert "4.4" in model or "4.5" in model  # GiB of FP32 weights
    assert "does fit" in model
    assert "plain data parallelism" in model.lower()
    assert "MiB" in problems["claim-layer-too-large"].message
    assert "need not fit in GPU memory" in problems["claim-dataset-in-memory"].message
    turns = problems["claim-within-stage"].message
    assert "not tensor parallelism" in turns
    assert "take turns" in turns
    assert "1 : 1." in turns or "1 : 2." in turns
    assert "42.9%" in problems["bubble"].message
    assert "Proton" in problems["claim-triton-profiler"].message
    assert "does not shrink the states" in problems["claim-precision-shrinks-states"].message


def test_neighbours_of_the_worked_example_are_legal_and_near() -> None:
    near = neighbours(as_written())
    assert [(w.dp, w.tp, w.pp, w.micro_batch, w.micro_batches) for w in near[::2]] == [
        (1, 2, 4, 16, 16), (2, 1, 4, 16, 8), (2, 2, 2, 16, 8),
    ]  # fmt: skip
    assert {w.recompute for w in near} == {"full"}
    assert all(legal(replace(as_written(), wanted=wanted)) for wanted in near)
    assert plain(as_written()).dp == 8


def test_a_claim_that_is_true_is_not_questioned() -> None:
    large = replace(LLAMA, layers=80, hidden=8192, heads=64, kv_heads=64, ffn_hidden=28672)
    asked = propose(large, on(64))
    asked = replace(asked, claims={"model_exceeds_one_gpu": "true", "profilers": "nsight-systems, torch"})
    assert judge(asked) == ()
    assert (
        judge(
            replace(
                asked,
                claims={"profilers": "nvprof"},
                cluster=on(64, device=device("V100-32GB-SXM")),
                training=Training(precision="fp16"),
            )
        )
        == ()
    )
    assert warnings(replace(asked, claims={"profilers": "nvprof"})) == ["claim-nvprof"]


# Degrees


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


# Batch


def test_the_batch_equation() -> None:
    asked = propose(batch=30, dp=2, micro_batch=4)
    assert "batch.global = 24 or 32" in text(found(asked)["batch-equation"])
    replicas = propose(batch=64, tp=1, pp=4, cp=1, micro_batch=2, micro_batches=4)
    assert "2 groups × 2 samples × 4 micro-batches = 16, not 64" in found(replicas)["batch-equation"].message
    assert "16 micro-batches give 64" in found(replicas)["batch-equation"].legal
    assert legal(propose(batch=64, tp=1, pp=4, cp=1, micro_batch=2, micro_batches=16))


def test_fewer_ranks_than_believed() -> None:
    asked = replace(
        propose(batch=8, cluster=on(1, gpus_per_node=1), micro_batch=2, micro_batches=1),
        written={"cluster.gpus": ("cluster.gpus", "detected"), "batch.micro_batch": ("batch.micro_batch", "user")},
    )
    said = text(found(asked)["batch-equation"])
    assert "1 group (detected on this machine) × 2 samples × 1 micro-batch = 2, not 8" in said
    assert "layout.dp = 4" in said


def test_more_replicas_than_samples() -> None:
    assert errors(propose(dp=8, micro_batch=64)) == ["batch-fills-replicas"]
    assert errors(propose(batch=2, dp=8)) == ["batch-fills-replicas"]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]), st.integers(1, 300), st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 20), st.none() | st.integers(1, 16),
)  # fmt: skip
def test_the_equation_is_refused_exactly_when_no_replica_count_solves_it(
    gpus: int, total: int, micro: int | None, counts: int | None, dp: int | None
) -> None:
    asked = propose(batch=total, cluster=on(gpus), dp=dp, micro_batch=micro, micro_batches=counts)
    possible = [dp] if dp is not None else divisors(gpus)
    solvable = any(
        total % d == 0
        and (micro is None or (total // d) % micro == 0)
        and (counts is None or (total // d) % counts == 0)
        and (micro is None or counts is None or d * micro * counts == total)
        for d in possible
    )  # fmt: skip
    assert solvable == (not {"batch-equation", "batch-fills-replicas"} & set(errors(asked)))
    for near in neighbours(asked):
        assert legal(replace(asked, wanted=near))


# Pipeline


def test_more_stages_than_units() -> None:
    toy = replace(LLAMA, layers=2, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn_hidden=32, vocab=50000)
    for pp, right in ((2, True), (4, True), (6, True), (8, False)):
        assert legal(propose(toy, cluster=on(pp), pp=pp, batch=24)) == right
    assert "the model has 6: embed, 2 layers of 2, head" in found(propose(toy, pp=8))["enough-units"].message


def test_stages_that_lose_double_or_swap_units() -> None:
    names = tuple(unit.name for unit in units_of(replace(LLAMA, layers=2)))
    small = replace(LLAMA, layers=2)
    for stages, fault in (
        ((names[:2], names[3:]), "missing: layers.0.ffn"),
        ((names[:3], names[2:]), "held twice: layers.0.ffn"),
        ((names[:2], (names[3], names[2], *names[4:])), "out of order"),
        ((names, ()), "empty: stage 1"),
        (((*names, "layers.9.attn"), ()), "unknown: layers.9.attn"),
    ):
        asked = propose(small, pp=2, stages=stages)
        assert errors(asked) == ["stages-cover"]
        assert fault in found(asked)["stages-cover"].message
    assert legal(propose(small, pp=2, stages=(names[:3], names[3:])))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 4))
def test_even_stages_always_cover(layers: int, pp: int, vpp: int) -> None:
    arch = replace(LLAMA, layers=layers)
    if pp * vpp <= 2 * layers + 2:
        asked = propose(arch, pp=pp, vpp=vpp, stages=even_stages(arch, pp * vpp))
        assert not {"stages-cover", "stage-count"} & set(errors(asked))


def test_a_batch_cannot_be_cut_into_unequal_micro_batches() -> None:
    asked = propose(batch=8, cluster=on(3), dp=1, tp=1, pp=3, cp=1, micro_batches=3)
    assert errors(asked) == ["batch-equation"]
    assert "batch.global = 6 or 9" in text(found(asked)["batch-equation"])


def test_placement() -> None:
    stages = even_stages(LLAMA, 3)
    assert legal(propose(pp=2, stages=stages, placement=(0, 1, 0)))
    assert errors(propose(pp=2, stages=stages)) == ["stage-count"]
    assert errors(propose(pp=2, stages=stages, placement=(0, 1))) == ["stage-count"]
    assert "no pipeline rank 2" in found(propose(pp=2, stages=stages, placement=(0, 1, 2)))["placement"].message
    assert "rank 1 holds nothing" in found(propose(pp=2, stages=stages, placement=(0, 0, 0)))["placement"].message


def test_chunks_and_schedules() -> None:
    assert errors(propose(pp=2, vpp=2, schedule="1f1b")) == ["chunks"]
    assert errors(propose(pp=2, vpp=3, schedule="zbv")) == ["chunks"]
    assert legal(propose(pp=2, vpp=2, schedule="interleaved"))
    six = propose(cluster=on(6), batch=3, dp=1, pp=6, vpp=2, schedule="interleaved", micro_batch=1)
    assert errors(six) == ["schedule-micro-batches"]
    assert "multiple of pp = 6, not 3" in found(six)["schedule-micro-batches"].message


@pytest.mark.parametrize(("pp", "m", "idle"), [(8, 1, "87.5%"), (6, 3, "62.5%")])
def test_fewer_micro_batches_than_stages_is_a_warning_with_the_idle_share(pp: int, m: int, idle: str) -> None:
    asked = propose(cluster=on(pp), batch=m, dp=1, tp=1, pp=pp, cp=1, schedule="gpipe", micro_batch=1)
    assert errors(asked) == []
    assert idle in found(asked)["few-micro-batches"].message


# Waste


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


# Silence

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
    claims = {
        "model_exceeds_one_gpu": "true",
        "layer_exceeds_one_gpu": "true",
        "within_stage": "attention | feed-forward",
    }
    asked = replace(
        propose(arch, on(data.draw(st.integers(1, 12))), data.draw(st.integers(1, 40)), **wanted), claims=claims
    )
    problems = judge(asked)
    assert all(problem.message and problem.fields for problem in problems)
    assert not legal(asked) or all(p.rule == "states-exceed-memory" or p.severity == "warning" for p in problems)
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
    assert legal(asked) == (not broken - {"states-exceed-memory"})


def test_predicates_take_arrays() -> None:
    dp, tp = np.array([1, 2, 4]), np.array([8, 4, 3])
    assert predicates.world_matches(dp, tp, 1, 1, 8).tolist() == [True, True, False]
    assert predicates.heads_split(16, 4, tp).tolist() == [False, True, False]


def test_rule_names_are_unique_and_errors_come_first() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    severities = [rule.severity for rule in RULES]
    assert severities == sorted(severities)
