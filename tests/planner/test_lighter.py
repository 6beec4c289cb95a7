"""Full recompute of no more layers than memory asks for."""

from collections.abc import Callable
from dataclasses import replace

from meshwright.files.setup import Setup
from meshwright.layout.degrees import describe
from meshwright.model.architecture import Architecture
from meshwright.planner.rank import plan
from meshwright.predictor.step import predict

MakeJob = Callable[..., Setup]
SMALL = Architecture("small", "llama", 12, 1024, 8, 8, 128, 2816, 16000)
FIXED = {"dp": 4, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 4, "zero": 1}


def needs(setup: Setup) -> float:
    found = plan(setup, top=1).plans[0].prediction
    assert found is not None
    return found.worst_memory.total / 2**30


def between(make_job: MakeJob, runner: str = "any") -> Setup:
    """Memory half-way between selective and full recompute."""
    both = [make_job(SMALL, gpus=4, batch=64, seq_len=2048, recompute=how, **FIXED) for how in ("selective", "full")]
    memory = sum(map(needs, both)) / 2
    return make_job(SMALL, gpus=4, batch=64, seq_len=2048, memory_gib=memory, runner=runner, **FIXED)


def test_the_least_number_of_layers_that_fits(make_job: MakeJob) -> None:
    job = between(make_job)
    best = plan(job, top=1).plans[0]
    k = best.layout.recompute_layers
    assert best.layout.recompute == "full"
    assert k is not None
    assert 0 < k < 12
    assert f"of {k} layers a stage" in describe(best.layout)
    assert predict(best).fits
    assert not predict(replace(best, layout=replace(best.layout, recompute_layers=k - 1))).fits
    all_of_them = predict(replace(best, layout=replace(best.layout, recompute_layers=None)))
    assert predict(best).step_time_s < all_of_them.step_time_s


def test_a_framework_without_that_mode_recomputes_all(make_job: MakeJob) -> None:
    """torchtitan and DeepSpeed recompute all layers or none."""
    best = plan(between(make_job, "deepspeed"), top=1).plans[0]
    assert best.layout.recompute_layers is None


def test_what_the_job_fixes_stays(make_job: MakeJob) -> None:
    job = between(make_job)
    wanted = replace(job.proposal.wanted, recompute="full")
    best = plan(replace(job, proposal=replace(job.proposal, wanted=wanted)), top=1).plans[0]
    assert best.layout.recompute_layers is None
