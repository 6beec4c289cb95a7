"""The front of memory and time, and what a relaxation gains."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from meshwright.files.setup import Setup
from meshwright.model.architecture import Architecture
from meshwright.planner.candidates import Bench
from meshwright.planner.pareto import front
from meshwright.planner.rank import plan
from meshwright.planner.sensitivity import relaxations, sensitivity
from meshwright.predictor.constants import RESOLUTION

MakeJob = Callable[..., Setup]
SMALL = Architecture("small", "llama", 6, 1024, 8, 8, 128, 2816, 16000)


def step(setup: Setup) -> float:
    return min(one.prediction.step_time_s for one in plan(setup, top=3).plans if one.prediction)


def test_less_memory_is_never_faster(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024)
    points = front(Bench(job), plan(job, top=1).plans[0])
    assert len(points) > 3
    for fast, lean in pairwise(points):
        assert lean.bytes < fast.bytes
        assert lean.step_s > fast.step_s


def test_each_point_is_the_fastest_within_its_memory(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024)
    points = front(Bench(job), plan(job, top=1).plans[0])
    for point in points[::3]:
        cluster = replace(job.proposal.cluster, memory_bytes=point.bytes)
        assert point.step_s <= step(replace(job, proposal=replace(job.proposal, cluster=cluster))) * (
            1 + RESOLUTION.value
        )


def test_gains_are_sorted_and_their_plans_are_of_the_changed_job(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024, a_node=2, recompute="full")
    found = sensitivity(job, plan(job, top=1).plans[0])
    gains = [one.gain for one in found if one.gain is not None]
    assert gains == sorted(gains, reverse=True)
    by_change = {one.change: one for one in found}
    assert set(by_change) == {change for change, _ in relaxations(job.proposal)}
    freed = by_change["recompute left free"]
    assert freed.plan is not None
    assert freed.plan.layout.recompute != "full"
    assert freed.gain is not None
    assert freed.gain > 0.1
    assert by_change["one more node (6 devices)"].plan is None or by_change["one more node (6 devices)"].gain


@pytest.mark.parametrize(
    "change",
    ["devices with twice the memory", "links inside nodes twice as fast", "links between nodes twice as fast"],
)
def test_better_hardware_is_never_slower(make_job: MakeJob, change: str) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024, a_node=2, memory_gib=4.0)
    changed = dict(relaxations(job.proposal))[change]
    assert step(replace(job, proposal=changed)) <= step(job) * (1 + 1e-9)
