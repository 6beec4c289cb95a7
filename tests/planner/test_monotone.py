"""What physics says of best plans: more of a good thing never hurts, and times scale together."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.degrees import SCHEDULES
from meshwright.model.architecture import Architecture
from meshwright.planner.rank import plan

MakeJob = Callable[..., Setup]
SMALL = Architecture("small", "llama", 8, 1024, 8, 8, 128, 2816, 16000)


def best(setup: Setup) -> Plan:
    return plan(setup, top=1).plans[0]


def step(setup: Setup) -> float:
    return min(one.prediction.step_time_s for one in plan(setup, top=3).plans if one.prediction)


def times(constant: Constant, factor: float) -> Constant:
    return replace(constant, value=constant.value * factor)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_more_micro_batches_never_more_bubble(make_job: MakeJob, schedule: str) -> None:
    idle = []
    vpp = 1 if schedule in ("gpipe", "1f1b", "zb-h1") else 2
    for m in (8, 16, 32, 64):
        job = make_job(
            SMALL, gpus=4, batch=m, seq_len=1024, pp=4, dp=1, tp=1, cp=1, micro_batch=1, schedule=schedule, vpp=vpp,
            recompute="none", zero=0,
        )  # fmt: skip
        found = best(job).prediction
        assert found is not None
        idle.append(found.bubble_fraction)
    assert all(more <= less + 1e-9 for less, more in pairwise(idle))


@pytest.mark.parametrize("memory", [(3.0, 4.0), (4.0, 8.0), (8.0, 39.0)])
def test_more_memory_is_never_slower(make_job: MakeJob, memory: tuple[float, float]) -> None:
    less, more = (step(make_job(SMALL, gpus=4, batch=16, seq_len=1024, memory_gib=size)) for size in memory)
    assert more <= less * (1 + 1e-9)


@pytest.mark.parametrize("which", ["intra", "inter"])
@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_a_faster_link_is_never_slower(make_job: MakeJob, which: str, factor: float) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024, a_node=2)
    cluster = job.proposal.cluster
    link: Link = getattr(cluster, which)
    faster = replace(cluster, **{which: replace(link, bytes_per_s=times(link.bytes_per_s, factor))})  # type: ignore[arg-type]
    assert step(replace(job, proposal=replace(job.proposal, cluster=faster))) <= step(job) * (1 + 1e-9)


def test_twice_as_fast_in_everything_takes_half_the_time(make_job: MakeJob) -> None:
    """All but what the predictor holds fixed: ramp-up of a kernel, launch of a collective, a millisecond a step."""

    def device(of: Device) -> Device:
        peaks = {dtype: times(peak, 2) for dtype, peak in of.peak_flops.items()}
        return replace(
            of, peak_flops=peaks, memory_bandwidth=times(of.memory_bandwidth, 2), launch_s=times(of.launch_s, 0.5)
        )

    def link(of: Link) -> Link:
        return replace(of, bytes_per_s=times(of.bytes_per_s, 2), latency_s=times(of.latency_s, 0.5))

    job = make_job(SMALL, gpus=4, batch=64, seq_len=2048)
    cluster = job.proposal.cluster
    fast = replace(cluster, device=device(cluster.device), intra=link(cluster.intra), inter=link(cluster.inter))
    ratio = step(replace(job, proposal=replace(job.proposal, cluster=fast))) / step(job)
    assert 0.5 <= ratio < 0.58


def test_twice_the_batch_takes_at_most_twice_the_time(make_job: MakeJob) -> None:
    one, two = (step(make_job(SMALL, gpus=4, batch=size, seq_len=1024)) for size in (16, 32))
    assert one < two <= 2 * one


def test_names_and_order_of_links_do_not_matter(make_job: MakeJob) -> None:
    job = make_job(SMALL, gpus=4, batch=16, seq_len=1024)
    cluster: Any = job.proposal.cluster
    renamed = replace(cluster, intra=replace(cluster.intra, name="other"))
    assert step(replace(job, proposal=replace(job.proposal, cluster=renamed))) == step(job)
