"""A run of real ranks: what the worker leaves in the run folder, how it resumes, and what it says when it breaks."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.basics.errors import InputError, RunFailed
from meshwright.basics.figures import Mode
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import write_plan
from meshwright.files.run import RunFolder, StepMetrics
from meshwright.files.run_io import read_memory, read_metrics, read_units
from meshwright.files.strict_json import dump
from meshwright.model.parameters import total_parameters
from meshwright.timeline.columns import Action, Kind, Timeline, concatenate
from meshwright.timeline.storage import load
from meshwright.trainer.launch import finish, run_ranks
from meshwright.trainer.options import Phase, TrainOptions, write_options
from meshwright.trainer.parity import synthetic_tokens
from meshwright.trainer.watch import Watch

from .plans import TINY, cut, plan

UNEVEN = cut(TINY, 3, 7)
WORKER = "meshwright.trainer.worker"


def on_a_gpu(given: Plan) -> Plan:
    """The plan on a catalogue cluster, which a plan file can name; here it runs on CPUs all the same."""
    gpu = device("A100-40GB-SXM")
    cluster = Cluster(gpu, given.layout.world, 8, link("nvlink3"), link("ib-hdr"), gpu.memory_bytes)
    return replace(given, setup=replace(given.setup, proposal=replace(given.setup.proposal, cluster=cluster)))


def make(folder: Path, given: Plan, *phases: Phase, **options: object) -> RunFolder:
    """A run folder ready for its ranks."""
    tokens = folder / "tokens"
    if not tokens.exists():
        tokens.mkdir(parents=True)
        synthetic_tokens(256, 20_000, seed=0).tofile(tokens / "tokens.bin")
        header = {"dtype": "uint32", "count": 20_000, "vocab": 256, "documents": 1, "text_bytes": 0, "corpus": ""}
        dump(header, tokens / "header.json")
    write_plan(on_a_gpu(given), folder / "plan.toml")
    costs = {name: (0.004, 0.008) for stage in cut(TINY, 10) for name in stage}
    write_options(
        TrainOptions(run=folder, phases=phases, tokens=tokens, dilation=6.0, unit_costs=costs, timeout_s=20, **options)
    )  # type: ignore[arg-type]
    return RunFolder(folder)


def train(folder: RunFolder, given: Plan) -> tuple[StepMetrics, ...]:
    """Run the ranks to their end."""
    watch = Watch(folder.metrics, given.layout.world, 1, 1, lambda line: None)
    run_ranks(given.layout.world, folder, watch, WORKER)
    return read_metrics(folder.metrics)


def spans(folder: RunFolder) -> Timeline:
    return concatenate([load(file) for file in sorted(folder.spans.glob("rank*.npz"))])


def phase(mode: Mode, steps: int = 3, profile: bool = False) -> Phase:
    return Phase(mode, steps, profile)


@pytest.mark.slow
def test_emulated_pipeline_takes_the_time_its_units_are_said_to_take(tmp_path: Path) -> None:
    """Two stages of 3 and 7 units, 4 ms and 8 ms each, 8 micro-batches: the last stage is busy 8 * 7 * 12 ms, before it
    one forward and after it one backward of the first stage, 3 * 12 ms.
    """
    given = plan(stages=UNEVEN, pp=2, micro_batch=2)
    steps = train(folder := make(tmp_path, given, phase("emulated", 4)), given)
    ideal = 8 * 7 * 0.012 + 3 * 0.012
    assert [step.mode for step in steps] == ["emulated"] * 4
    assert min(step.step_time_s for step in steps[1:]) == pytest.approx(ideal, rel=0.05)
    timeline = spans(folder)
    assert timeline.recorded == (0, 1)
    assert set(timeline.step.tolist()) == {2, 3, 4}  # the first step warms up
    compute = timeline.select((timeline.kind == Kind.COMPUTE) & (timeline.step == 2) & (timeline.stage >= 0))
    for rank, units in enumerate((3, 7)):
        busy = (compute.end - compute.start)[compute.rank == rank].sum() / 1e9
        assert busy == pytest.approx(8 * units * 0.012, rel=1e-3)
    receives = timeline.select((timeline.kind == Kind.COMMUNICATION) & (timeline.sequence < 0) & (timeline.step == 2))
    assert len(receives) == 16
    assert set(receives.size.tolist()) == {2 * 32 * 64 * 4}
    assert set(zip(receives.rank, receives.action, strict=True)) == {(0, Action.BACKWARD), (1, Action.FORWARD)}


@pytest.mark.slow
def test_measured_and_dilated_phases_of_eight_ranks(tmp_path: Path) -> None:
    given = plan(stages=cut(TINY, 5, 5), dp=2, tp=2, pp=2, micro_batch=2, recompute="full")
    folder = make(tmp_path, given, phase("measured", 2, profile=True), phase("dilated", 2))
    steps = train(folder, given)
    assert [(s.step, s.window, s.mode, s.profiled, s.dilation) for s in steps] == [
        (1, 0, "measured", True, 1.0), (2, 0, "measured", True, 1.0), (3, 1, "dilated", False, 6.0),
        (4, 1, "dilated", False, 6.0),
    ]  # fmt: skip
    assert all(step.tokens == 512 and step.grad_norm > 0 for step in steps)
    traces = sorted(folder.traces.glob("*"))
    assert [trace.name for trace in traces] == [f"rank{rank:05}.json.gz" for rank in range(8)]
    names = {event.get("name") for event in json.loads(gzip.decompress(traces[5].read_bytes()))["traceEvents"]}
    assert "gloo:all_reduce" in names
    timeline = spans(folder)
    assert (timeline.mode, timeline.time_scale, timeline.recorded) == ("dilated", 6.0, tuple(range(8)))
    tensor = timeline.select(np.isin(timeline.name, [timeline.names.index(n) for n in ("tp sum", "tp grad")]))
    for group, number in set(zip(tensor.group.tolist(), tensor.sequence.tolist(), strict=True)):
        together = tensor.select((tensor.group == group) & (tensor.sequence == number))
        assert sorted(together.rank.tolist()) == list(timeline.groups[group])  # matched across ranks
        assert len(set(together.size.tolist())) == len(set(together.name.tolist())) == 1
    units = read_units(folder.units)
    assert set(units.units) == {name for stage in given.layout.stages for name in stage}
    assert all(time.forward_s > 0 and time.backward_s > 0 for time in units.units.values())
    for name, time in units.units.items():  # layers compute again in their backward, the ends do not
        assert 0 < time.recompute_s < time.backward_s if "layers" in name else time.recompute_s == 0
    assert sum(t.backward_s for t in units.units.values()) > sum(t.forward_s for t in units.units.values())
    assert {time.samples for time in units.units.values()} == {2 * 4 * 4}  # steps, ranks of a stage, micro-batches
    assert (units.mode, units.tp, units.recompute, units.micro_batch) == ("dilated", 2, "full", 2)
    assert units.optimizer_s > 0
    memory = read_memory(folder.memory)
    assert [rank.rank for rank in memory] == list(range(8))
    assert units.optimizer_parameters == sum(rank.weights for rank in memory) / 4 / 8  # fp32, mean of eight ranks
    for rank in memory:
        assert rank.gradients == rank.weights
        assert rank.optimizer == pytest.approx(2 * rank.weights, rel=0.01)
        assert rank.peak_rss > 100e6
    whole, shared = sum(rank.weights for rank in memory) / 2, 4 * total_parameters(TINY)
    assert shared < whole < 1.01 * shared  # two replicas; norms lie on both tensor ranks


@pytest.mark.slow
def test_resumed_on_another_layout_it_trains_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    before, after = plan(stages=UNEVEN, pp=2), plan(tp=2)
    straight = train(make(tmp_path / "straight", before, phase("measured", 6)), before)
    folder = make(tmp_path / "broken", before, phase("measured", 4), checkpoint_every=4)
    train(folder, before)
    make(tmp_path / "broken", after, phase("measured", 6), resume=True)
    resumed = train(folder, after)
    assert [step.step for step in resumed] == [1, 2, 3, 4, 5, 6]
    for ours, theirs in zip(resumed, straight, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert ours.grad_norm == pytest.approx(theirs.grad_norm, rel=1e-4)


@pytest.mark.slow
def test_a_plan_it_cannot_run_and_an_error_inside_a_stage(tmp_path: Path) -> None:
    chunked = plan(loss_chunk=16)
    with pytest.raises(InputError, match=r"layout\.loss_chunk"):
        train(make(tmp_path / "refused", chunked, phase("measured")), chunked)
    given = plan(stages=UNEVEN, pp=2)
    folder = make(tmp_path / "broken", given, phase("measured"))
    tokens = np.full(20_000, 300, np.uint32)  # beyond the vocabulary: the embedding's lookup fails
    tokens.tofile(tmp_path / "broken" / "tokens" / "tokens.bin")
    said = r"rank 0 \(pp 0, dp 0, tp 0\), step 1, forward, stage 0, micro-batch 0: .*out of"
    with pytest.raises(RunFailed, match=said):
        train(folder, given)


@pytest.mark.slow
def test_steps_whose_gradients_overflow_are_told(tmp_path: Path) -> None:
    recipe = {"precision": "fp16", "loss_scale": 2.0**32, "warmup": 4}
    given = plan(stages=UNEVEN, pp=2, training=recipe)
    folder = make(tmp_path, given, phase("measured", 3))
    steps = train(folder, given)
    assert [(step.skipped, step.loss_scale) for step in steps] == [(True, 2.0**32)] * 3
    assert len({step.lr for step in steps}) == 1  # the warm-up has not begun
    assert not any(math.isfinite(step.grad_norm) for step in steps)
    assert all(math.isfinite(step.loss) for step in steps)
    said: list[str] = []
    finish(given, folder, TrainOptions(run=tmp_path, phases=(phase("measured", 3),)), said.append)
    assert [line for line in said if line.startswith("note: skipped steps are unsettled: the last 3 of 3 steps")]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_travel_during_the_last_backward_when_asked_to(tmp_path: Path, overlap: bool) -> None:
    given = plan(dp=2, bucket_mib=0.1, overlap=overlap)
    train(folder := make(tmp_path, given, phase("emulated")), given)
    timeline = spans(folder)
    mine = timeline.select((timeline.rank == 0) & (timeline.step == 3))
    backward = mine.select((mine.action == Action.BACKWARD) & (mine.kind == Kind.COMPUTE))
    exchanges = mine.select(mine.name == mine.names.index("dp all-reduce"))
    assert len(exchanges) > 5
    assert exchanges.size.sum() == 4 * total_parameters(TINY)
    assert (exchanges.start < backward.end.max()).any() == overlap
    assert (exchanges.start > backward.start.max()).all()  # once a step, not in every micro-batch
