"""The diagnosis of a run, of a timeline or of trace files: what cost time, why, and what would cure it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.bubbles import bubble_of
from meshwright.diagnosis.communication import communicates
from meshwright.diagnosis.evidence import Evidence, gather
from meshwright.diagnosis.imbalance import find_imbalance
from meshwright.diagnosis.micro_batches import find_too_few_micro_batches
from meshwright.diagnosis.recompute import find_needless_recompute
from meshwright.diagnosis.replay import REFUSED, TRUSTED, Replay, replay_of
from meshwright.diagnosis.stragglers import find_slow_ranks
from meshwright.diagnosis.traced import traced
from meshwright.diagnosis.traced_findings import findings_of
from meshwright.files.findings import Diagnosis, Finding
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.run import MeasuredUnits, RunFolder
from meshwright.files.run_io import read_memory, read_metrics, read_units
from meshwright.timeline.columns import Timeline
from meshwright.traces.kineto import Traces, read_kineto
from meshwright.traces.spans import missing_ranks, read_run


def diagnose_paths(
    paths: Sequence[Path | str], *, cache: bool = True, said: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Diagnose what the paths are: one run folder, or trace files of torch.profiler (and folders of them).

    Raises InputError when a path cannot be read, or run folders and other paths are mixed.
    """
    given = [Path(path) for path in paths]
    runs = [path for path in given if path.is_dir() and RunFolder(path).metrics.exists()]
    if runs:
        if len(given) > 1:
            raise bad_input("one run at a time, not mixed with other paths", value=[str(path) for path in given])
        return diagnose_run(runs[0])
    traces = read_kineto(given, cache=cache, said=said)
    return diagnose_traces(traces, tuple(str(path) for path in given))


def diagnose_traces(traces: Traces, inputs: Sequence[str] = ()) -> Diagnosis:
    """Diagnose traces of torch.profiler by themselves, without the plan they ran."""
    job = traced(traces.timeline, traces.launch, traces.uses)
    line = job.timeline if job is not None else traces.timeline
    base = diagnose_timeline(line, inputs=inputs, notes=traces.notes, world_size=traces.world_size)
    if job is None:
        return base
    world = traces.world_size or len(line.recorded)
    findings, notes, tables = findings_of(job, silent=world > 1 and not communicates(line))
    return dataclasses.replace(
        base, findings=findings, abstained=(*base.abstained, *notes), tables={"traces": tables}
    )  # fmt: skip


def diagnose_run(folder: Path | str) -> Diagnosis:
    """Diagnose a run of our own: its plan, spans, unit times, memory and the step times of its metrics.

    Where no spans were recorded the profiler's traces are read instead. Raises InputError when it is no run folder,
    or recorded neither.
    """
    run = RunFolder(Path(folder))
    if not run.metrics.exists():
        raise bad_input("not a run folder: there is no metrics.jsonl in it", file=str(folder))
    plan = read_plan(run.plan)
    notes: list[str] = []
    if not any(run.spans.glob("*.npz")) and run.traces.is_dir():
        traces = read_kineto([run.traces])
        timeline, notes = traces.timeline, ["no spans were recorded: read from the profiler's traces", *traces.notes]
    else:
        timeline = read_run(run.root)
    if absent := missing_ranks(timeline, plan.layout.world):
        notes.append(f"no spans of ranks {list(absent)} of {plan.layout.world}: nothing is said about them")
    measured = read_units(run.units) if run.units.exists() else None
    if measured is None:
        notes.append("unit times were not recorded")
    times = [step.device_s for step in read_metrics(run.metrics) if step.mode == timeline.mode]
    memory: Mapping[str, object] = {}
    if run.memory.exists():
        ranks = read_memory(run.memory)
        held = {rank.rank: rank.weights + rank.gradients + rank.optimizer for rank in ranks}
        memory = {
            "states_bytes": held, "worst_rank": max(held, key=held.__getitem__),
            "peak_tensor_bytes": {rank.rank: rank.peak_tensors for rank in ranks if rank.peak_tensors is not None},
            "peak_process_bytes": max(rank.peak_rss for rank in ranks),
        }  # fmt: skip
    else:
        notes.append("memory was not recorded")
    return diagnose_timeline(
        timeline, plan, measured, inputs=(str(folder),), notes=notes, world_size=plan.layout.world, memory=memory,
        step_time_s=float(np.median(times)) if times else None,
    )  # fmt: skip


def diagnose_timeline(
    timeline: Timeline,
    plan: Plan | None = None,
    measured: MeasuredUnits | None = None,
    *,
    inputs: Sequence[str] = (),
    notes: Sequence[str] = (),
    world_size: int | None = None,
    memory: Mapping[str, object] | None = None,
    step_time_s: float | None = None,
) -> Diagnosis:
    """Diagnose a timeline, with the plan it ran and the unit times measured in it where known.

    Findings are sorted by the time their cure would recover, one for each cause; a healthy run has none. What cannot
    be said is in `abstained`, never a zero. All figures are device seconds. `step_time_s` is the step time measured
    without looking at spans; where it is not given, the mean step of the spans stands in.
    """
    said = list(notes)
    evidence = gather(timeline, plan, measured)
    heard = communicates(timeline)
    silent = not heard and (world_size or len(timeline.recorded)) > 1 and timeline.mode != "predicted"
    if silent:
        ranks = world_size or len(timeline.recorded)
        said.append(
            f"no collectives found although the job has {ranks} ranks: communication was not recorded, and how much of "
            "it compute covers cannot be said"
        )
    if heard and timeline.mode == "dilated":
        said.append(
            f"only computing is stretched: communication counts as its wall time over {timeline.time_scale:g}, which "
            "is up to that many times too little"
        )
    bubble: Mapping[str, object] = {}
    findings: list[Finding] = []
    if _hides_imbalance(evidence):
        said.append(
            "more ranks than cores in plain wall time, where waiting and sharing a core look alike: profile in dilated "
            "mode to see imbalance and bubbles"
        )
    elif len(timeline):
        bubble, findings = _pipeline(evidence, said)
    return Diagnosis(
        inputs=tuple(inputs),
        mode=timeline.mode,
        window=_window_text(evidence),
        ranks=() if silent else evidence.splits,
        bubble=bubble,
        memory=memory or {},
        findings=tuple(sorted(findings, key=lambda finding: finding.cost_s_per_step or 0.0, reverse=True)),
        abstained=tuple(said),
        step_time_s=step_time_s if step_time_s is not None else (evidence.step_s or None),
    )


def _pipeline(evidence: Evidence, said: list[str]) -> tuple[Mapping[str, object], list[Finding]]:
    replay = replay_of(evidence)
    if isinstance(replay, str):
        said.append(f"pipeline, recompute and micro-batches were not judged: {replay}")
        return {}, list(find_slow_ranks(evidence, None, said))
    bubble = bubble_of(evidence, replay)
    if replay.error > TRUSTED:
        busy = "; another program may have kept the cores busy" if evidence.timeline.mode != "measured" else ""
        refused = replay.error > REFUSED
        said.append(
            f"replaying the run's own actions gives {seconds_text(replay.step_s)} a step where "
            f"{seconds_text(replay.observed_s)} were measured, {replay.error:.0%} off{busy}: "
            + ("no gain is predicted from it" if refused else "predicted gains are wide and of low confidence")
        )
        if refused:
            return bubble, list(find_slow_ranks(evidence, None, said))
    slow = find_slow_ranks(evidence, replay, said)
    found = [find_needless_recompute(evidence, replay, said), find_too_few_micro_batches(evidence, replay, said)]
    if not _explained(slow, evidence, replay):
        found.append(find_imbalance(evidence, replay, said))
    findings = [*slow, *(finding for finding in found if finding is not None)]
    if replay.error > TRUSTED:
        findings = [dataclasses.replace(finding, confidence="low") for finding in findings]
    return bubble, findings


def _explained(slow: Sequence[Finding], evidence: Evidence, replay: Replay) -> bool:
    """Is the imbalance a slow rank's doing? Then it is not a second cause."""
    compute = [evidence.stage_compute(stage) for stage in range(len(replay.plan.layout.stages))]
    heaviest = max(range(len(compute)), key=compute.__getitem__)
    alone = [finding for finding in slow if "pace_by_stage" in finding.evidence]
    return any(heaviest in finding.stages for finding in alone)


def _hides_imbalance(evidence: Evidence) -> bool:
    plan = evidence.plan
    return plan is not None and evidence.timeline.mode == "measured" and plan.setup.proposal.cluster.oversubscribed


def _window_text(evidence: Evidence) -> str:
    line = evidence.timeline
    ranks = f"{len(line.recorded)} ranks"
    if not evidence.windows:
        return f"nothing recorded on {ranks}"
    steps = [window.step for window in evidence.windows]
    which = "all that was recorded, steps not marked" if steps[0] < 0 else f"steps {steps[0]}-{steps[-1]}"
    scale = f", wall time divided by {line.time_scale:g}" if line.time_scale != 1 else ""
    return f"{which} ({len(steps)}), median {seconds_text(evidence.step_s)} on {ranks}{scale}"
