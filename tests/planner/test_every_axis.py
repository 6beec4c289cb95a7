"""The search finds what trying everything finds, on small jobs of any kind: no bound loses the best plan."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import AnswerIsNo
from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Setup
from meshwright.layout.degrees import RECOMPUTE
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.planner.candidates import Bench
from meshwright.planner.floors import ENDLESS
from meshwright.planner.rank import plan
from meshwright.planner.space import space

DENSE = Architecture("dense", "llama", 4, 512, 8, 4, 64, 1408, 8000)
TIED = Architecture("tied", "llama", 3, 256, 4, 4, 64, 704, 16000, tied=True)
EXPERTS = Architecture("experts", "mixtral", 4, 512, 8, 8, 64, 1024, 8000, experts=8, active_experts=2)


def job(arch: Architecture, gpus: int, a_node: int, batch: int, memory_gib: float, **wanted: Any) -> Setup:
    """A job on A100s, runnable by any framework."""
    links = catalogue.link("nvlink3"), catalogue.link("ib-hdr")
    cluster = Cluster(catalogue.device("A100-40GB-SXM"), gpus, a_node, *links, round(memory_gib * 2**30))
    return Setup(
        "small", Proposal(arch, cluster, Training(), batch, 512, Wanted(**wanted)), runnable_by="any", risk=0.5
    )


JOBS = st.builds(
    job, st.sampled_from([DENSE, TIED, EXPERTS]), st.sampled_from([2, 4]), st.sampled_from([1, 2, 4]),
    st.sampled_from([4, 6]), st.sampled_from([1.3, 1.6, 2.0, 4.0, 39.0]),
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS)
def test_finds_the_best_of_all(setup: Setup) -> None:
    bench, least = Bench(setup), float("inf")
    for group in space(setup).groups:
        for candidate in bench.fitted(group, group.zeros):
            zero = candidate.layout.zero
            assert bench.floors.of_layout(group, zero) <= candidate.bound_s * (1 + 1e-9)
            assert bench.floors.memory(group, zero) <= candidate.worst_bytes * (1 + 1e-9) + 8
            if candidate.fits and bench.refuse(candidate.layout) is None:
                found = bench.exact(candidate).prediction
                assert found is not None
                assert candidate.bound_s <= found.step_time_s * (1 + 1e-9)
                least = min(least, found.step_time_s)
    try:
        best = plan(setup, top=1).plans[0].prediction
    except AnswerIsNo:
        assert least == float("inf")
        return
    found_first = min(one.prediction.step_time_s for one in plan(setup).plans if one.prediction)
    assert best is not None
    assert found_first == pytest.approx(least, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(JOBS, st.sampled_from([1, 2, 3, 7, 8, 64, 300]), st.sampled_from(RECOMPUTE), st.randoms(use_true_random=False))
def test_nothing_is_better_used_than_in_an_endless_micro_batch(setup: Setup, micro: int, mode: Any, rng: Any) -> None:
    """Seconds and bytes a sequence of a micro-batch are no less than those of one of 65,536 sequences."""
    from dataclasses import replace

    families = space(setup).families
    assume(families)
    family = rng.choice(families)
    tables = Bench(setup).tables
    endless = tables.endless(family.structure, mode)
    group = replace(family.group(0, 0), micro_batch=micro, recompute=mode)
    assert tables(group).work_s >= 0.998 * endless.work_s * micro / ENDLESS
    assert tables(group).activation >= endless.activation * micro / ENDLESS * (1 - 1e-9)


def test_shards_inside_a_node_are_looked_at() -> None:
    setup = job(DENSE, 4, 2, 8, 39.0)
    asked = {(group.structure.shard_group, zero) for group in space(setup).groups for zero in group.zeros}
    assert {(2, 1), (2, 2), (2, 3), (None, 3)} <= asked


def test_experts_are_cut_as_the_rest_or_not_at_all() -> None:
    asked = {(group.structure.tp, group.structure.etp) for group in space(job(EXPERTS, 4, 4, 8, 39.0)).groups}
    assert {(2, 2), (2, 1), (4, 1)} <= asked
