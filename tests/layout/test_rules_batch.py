"""The batch equation."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.topology import Part
from meshwright.layout.batch import divisors
from meshwright.layout.neighbours import neighbours
from meshwright.layout.rules import legal

from .proposals import A100, errors, found, on, propose, text


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


def test_numbers_of_nodes_are_named_only_where_nodes_are_alike() -> None:
    """7 nodes of 8 replicas, 2880 samples in sixes: 6 and 10 nodes keep them; of unlike nodes nobody knows which."""
    wanted = {"dp": 56, "micro_batch": 6}
    alike = found(propose(cluster=on(56), batch=2880, **wanted))["batch-equation"]
    assert "nodes keep" in text(alike)
    a_node = Part(A100.device, 8, 8, A100.intra, A100.memory_bytes)
    parts = (*(a_node,) * 6, *(replace(a_node, gpus=4, gpus_per_node=4),) * 2)
    unlike = found(propose(cluster=on(56, parts=parts, gpus_per_node=4), batch=2880, **wanted))["batch-equation"]
    assert "nodes keep" not in text(unlike)
