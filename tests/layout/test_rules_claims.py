"""The worked example, and claims that are judged."""

from dataclasses import replace

from meshwright.cluster.catalogue import device
from meshwright.layout.neighbours import neighbours, plain
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules import judge, legal
from meshwright.model.propose import from_count
from meshwright.model.training import Training

from .proposals import LLAMA, errors, found, on, propose, warnings


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
