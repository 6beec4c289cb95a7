"""A run's phases on one rank: sets the clock for each, steps, and leaves what was measured in the run folder."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from meshwright.files.plan import Plan
from meshwright.files.run import RunFolder, StepMetrics
from meshwright.files.run_io import append_metrics, write_memory, write_units
from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.timeline.columns import Action, Timeline, concatenate
from meshwright.timeline.storage import save
from meshwright.trainer.clock import Cost, Pace
from meshwright.trainer.data import TokenFile
from meshwright.trainer.data_prefetch import Ahead, reading_ahead
from meshwright.trainer.data_sampler import Batch, Sampler, reading_of
from meshwright.trainer.engine import Engine
from meshwright.trainer.gathering import measured_units, to_first_rank, unit_sums
from meshwright.trainer.memory import PeakTensors, held_tensors, rank_memory
from meshwright.trainer.options import Phase, TrainOptions


def run_phases(
    engine: Engine, options: TrainOptions, tokens: TokenFile, first_step: int, after_step: Callable[[int], None]
) -> None:
    """Run every phase from global step `first_step` on; steps before it are taken as done. Collective.

    Rank 0 appends a line a step to metrics.jsonl and writes units.json and memory.json; each rank writes its spans of
    profiled and dilated phases, and a trace of profiled measured ones. `after_step` is called with the number of steps
    done, for checkpoints. Batches are read ahead in the background.
    """
    sampler = Sampler(tokens, reading_of(engine.plan))
    with reading_ahead(sampler.batch, range(first_step, options.steps)) as ahead:
        _run(engine, options, ahead, first_step, after_step)


def _run(
    engine: Engine, options: TrainOptions, ahead: Ahead[Batch], first_step: int, after_step: Callable[[int], None]
) -> None:
    folder, number = RunFolder(options.run), 0
    kept: list[Timeline] = []
    optimizer_s: list[float] = []
    peak, limit = None, memory_limit(engine.plan, engine.device)
    for window, phase in enumerate(options.phases):
        begin, end = number, number + phase.steps
        number = end
        if end <= first_step:
            continue
        pace = _pace(engine, phase, options)
        engine.clock.pace = pace
        recorded = phase.profile or phase.mode != "measured"
        if recorded and (not kept or kept[-1].mode != phase.mode):
            kept, optimizer_s = [], []
            engine.meter.reset()
        steps = range(max(begin, first_step), end)
        with _traced(engine, phase, folder):
            for step in steps:
                # A process's first step also pays for threads, connections and memory, a window's first step for the
                # change of pace: they are no measurements.
                cold = step == steps[0] and len(steps) > (1 if step == first_step else 2)
                engine.recorder.on = engine.meter.on = recorded and not cold
                batch, waited = ahead.take(step)
                # The second step has optimizer states and is no measurement of a window: it pays for the tracking.
                # A limit is held to from the first on.
                second = step == first_step + 1 and not recorded and len(steps) > 2
                if second or (limit is not None and step <= first_step + 1):
                    held = held_tensors(engine.parts.parameters, engine.optimizer, engine.parts.owned)
                    with PeakTensors(held, limit) as tracked:
                        outcome = engine.step(step, batch.samples, batch.positions)
                    peak = tracked.peak
                else:
                    outcome = engine.step(step, batch.samples, batch.positions)
                if engine.meter.on:
                    optimizer_s.append(outcome.optimizer_s)
                if engine.mesh.rank == 0:
                    line = StepMetrics(
                        step=step + 1, loss=outcome.loss, grad_norm=outcome.grad_norm, lr=outcome.lr,
                        tokens=outcome.tokens, step_time_s=outcome.seconds, mode=phase.mode, dilation=pace.dilation,
                        window=window, profiled=phase.profile,
                        loss_scale=outcome.loss_scale if engine.scale.active else None, skipped=outcome.skipped,
                        data_wait_s=waited, replica_tokens=batch.tokens, replica_squares=batch.squares,
                    )  # fmt: skip
                    append_metrics(folder.metrics, line)
                after_step(step + 1)
        if recorded:
            kept.append(engine.recorder.timeline(phase.mode, pace.dilation))
            engine.recorder.clear()
    _leave(engine, folder, kept, optimizer_s, peak)


def memory_limit(plan: Plan, device: torch.device) -> int | None:
    """Bytes of tensors a rank may hold: `cluster.memory_gib` where the user set it, on devices that do not run out by
    themselves; None elsewhere."""
    written = plan.setup.proposal.written.get("cluster.memory_gib")
    stated = written is not None and written[1] == "user"
    return plan.setup.proposal.cluster.memory_bytes if stated and device.type == "cpu" else None


def _leave(engine: Engine, folder: RunFolder, kept: list[Timeline], optimizer_s: list[float], peak: int | None) -> None:
    mesh = engine.mesh
    if kept:
        folder.spans.mkdir(exist_ok=True)
        save(concatenate(kept), folder.spans / f"rank{mesh.rank:05}.npz")
        mean = sum(optimizer_s) / max(1, len(optimizer_s))
        updated = sum(parameter.numel() for parameter in engine.parts.owned.values())
        ranks = to_first_rank((unit_sums(engine.meter), mean, updated), mesh)
        if ranks is not None:
            write_units(measured_units(engine.plan, ranks, kept[-1].mode), folder.units)
    memory = rank_memory(mesh.rank, engine.parts.parameters, engine.optimizer, peak, engine.parts.owned)
    held = to_first_rank(memory, mesh)
    if held is not None:
        write_memory(held, folder.memory)


def _pace(engine: Engine, phase: Phase, options: TrainOptions) -> Pace:
    if phase.mode == "dilated":
        return Pace("dilated", options.dilation or 1.0)
    if phase.mode == "emulated":
        layout = engine.plan.layout
        stages = {stage: model.units for stage, model in engine.parts.models}
        return Pace("emulated", 1.0, stated_cost(options.unit_costs or {}, stages, layout.schedule in SPLIT_BACKWARD))
    return Pace()


def stated_cost(costs: Mapping[str, tuple[float, float]], stages: Mapping[int, tuple[str, ...]], split: bool) -> Cost:
    """Device seconds of an action from (forward, backward) seconds of units; the halves of a backward are equal.

    Stage 0 has no input gradient to compute, so that its weight half is the whole backward. The optimizer is free.
    """

    def cost(action: Action, stage: int) -> float:
        if action == Action.OPTIMIZER:
            return 0.0
        units = stages[stage]
        if action == Action.FORWARD:
            return sum(costs[unit][0] for unit in units)
        backward = sum(costs[unit][1] for unit in units)
        if action == Action.BACKWARD:
            return backward
        if stage == 0 and split:
            return backward if action == Action.WEIGHT_BACKWARD else 0.0
        return backward / 2

    return cost


@contextmanager
def _traced(engine: Engine, phase: Phase, folder: RunFolder) -> Iterator[None]:
    """torch.profiler around a profiled phase in real time; never in a stretched one, whose CPU time it inflates."""
    if not phase.profile or phase.mode != "measured":
        yield
        return
    activities = [ProfilerActivity.CPU]
    if engine.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        yield
    folder.traces.mkdir(exist_ok=True)
    _export(profiler, folder.traces / f"rank{engine.mesh.rank:05}.json.gz")


def _export(profiler: torch.profiler.profile, path: Path) -> None:
    partial = path.with_name("partial-" + path.name)
    profiler.export_chrome_trace(str(partial))
    partial.replace(path)
