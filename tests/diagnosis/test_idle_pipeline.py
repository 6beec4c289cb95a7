"""Fill, starvation and drain of a generated 1F1B pipeline against the schedule's own arithmetic."""

from pathlib import Path

import pytest

from meshwright.diagnosis.idle_pipeline import pipeline_idle
from meshwright.diagnosis.traced import traced
from meshwright.traces.kineto import read_kineto

from .kineto_job import HOP, Job, write_job


def test_equal_stages_fill_one_forward_a_stage(tmp_path: Path) -> None:
    job = Job(dp=1, pp=4, micro_batches=8, forward=3000, noise=0.0, steps=2)
    traces = read_kineto([write_job(job, tmp_path / "job")])
    found = traced(traces.timeline, traces.launch)
    assert found is not None
    idle = pipeline_idle(found)
    for stage in range(4):
        assert idle[stage]["fill"] == pytest.approx(stage * (3000 + HOP) * 1e-6, rel=0.01)
    # all together: (p - 1) forwards and backwards on every stage, and the hops
    for stage in range(4):
        assert sum(idle[stage].values()) == pytest.approx(3 * (3000 + 6000) * 1e-6, rel=0.1)


def test_a_heavy_stage_starves_the_others(tmp_path: Path) -> None:
    job = Job(dp=1, pp=2, micro_batches=8, forward=3000, noise=0.0, steps=2, stage_factors={1: 1.5})
    traces = read_kineto([write_job(job, tmp_path / "job")])
    found = traced(traces.timeline, traces.launch)
    assert found is not None
    idle = pipeline_idle(found)
    assert idle[0]["starvation"] > 10 * idle[1]["starvation"]
    assert idle[0]["starvation"] > 0.2 * found.step_s


def test_no_stages_no_phases(tmp_path: Path) -> None:
    traces = read_kineto([write_job(Job(dp=2), tmp_path / "job")])
    found = traced(traces.timeline, traces.launch)
    assert found is not None
    assert pipeline_idle(found) == {}
