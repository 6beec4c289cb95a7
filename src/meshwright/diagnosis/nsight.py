"""Nsight Systems exports: the split, idle devices that wait for their host, and streams that forbid overlap."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from meshwright.basics.quantities import bytes_text, seconds_text
from meshwright.diagnosis.device_gaps import Gaps, gaps_of
from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.split import rank_splits, windows_of
from meshwright.diagnosis.thresholds import EXPOSED, IDLE
from meshwright.files.findings import Finding, RankSplit
from meshwright.timeline.columns import Kind, Timeline
from meshwright.traces.nsight import read_nsight


def diagnose_nsight(paths: Sequence[Path]) -> Said:
    """What the exports say. Raises InputError when one cannot be read."""
    traces = read_nsight(paths)
    line, notes = traces.timeline, list(traces.notes)
    windows = windows_of(line)
    splits = rank_splits(line, windows)
    communicates = bool((line.kind == Kind.COMMUNICATION).any())
    if not communicates and len(line.recorded) > 1:
        notes.append(
            f"no collectives found on {len(line.recorded)} GPUs: either they do not talk, or their communication was "
            "not recognised; how much of it is covered cannot be said"
        )
    gaps = [gaps_of(line, rank, traces.launched) for rank in line.recorded]
    steps = max(1, len(windows))
    found = [_idle(gaps, steps, notes), _copies(line, splits), _one_stream(line, splits)]
    tables: dict[str, object] = dict(traces.tables)
    tables["by GPU"] = [
        {
            "rank": gap.rank, "span_s": gap.span / 1e9, "compute_s": split.compute_s * steps, "idle_s": gap.idle / 1e9,
            "host_s": gap.host / 1e9, "launched_s": gap.launched / 1e9,
            "unknown_s": gap.unknown / 1e9,
        }
        for gap, split in zip(gaps, splits, strict=True)
    ]  # fmt: skip
    shown = splits if communicates or len(splits) < 2 else ()
    marked = len(windows) > 1 or windows[0].step >= 0
    window = f"{len(windows)} marked steps" if marked else "all that was captured, steps not marked"
    return Said(
        f"{window}, on {counted(len(line.recorded), 'GPU')}", tables=tables, ranks=shown, abstained=tuple(notes),
        findings=tuple(finding for finding in found if finding is not None),
    )  # fmt: skip


def _idle(gaps: Sequence[Gaps], steps: int, notes: list[str]) -> Finding | None:
    """The device waits for the host, where most of the idle time is provably that."""
    span, idle = sum(gap.span for gap in gaps), sum(gap.idle for gap in gaps)
    host, unknown = sum(gap.host for gap in gaps), sum(gap.unknown for gap in gaps)
    if idle < IDLE * span:
        return None
    if host < IDLE * span or host < (idle - unknown) / 2:
        why = "whose launch was not recorded" if unknown > idle / 2 else "that the host had launched before"
        notes.append(f"devices are idle {idle / span:.0%} of the time, most of it before work {why}: no cause is named")
        return None
    worst = max(gaps, key=lambda gap: gap.host)
    return Finding(
        kind="host bound",
        ranks=tuple(gap.rank for gap in gaps if gap.host >= IDLE * gap.span),
        stages=(),
        cause=(
            f"the devices are idle {idle / span:.0%} of the time, and at least {host / idle:.0%} of that is before the "
            "host had begun to launch what came next: the host, not the device, sets the pace"
        ),
        evidence={
            "idle_share": idle / span, "host_share_of_idle": host / idle,
            "span_s": {gap.rank: gap.span / 1e9 for gap in gaps}, "idle_s": {gap.rank: gap.idle / 1e9 for gap in gaps},
            "host_s": {gap.rank: gap.host / 1e9 for gap in gaps},
        },
        cost_s_per_step=worst.host / 1e9 / steps,
        share=worst.host / worst.span,
        confidence="high" if unknown <= idle / 2 else "medium",
        change={},
        predicted_gain=None,
        verify="raise the micro-batch or capture the step in a CUDA graph (torch.compile), then compare the step time",
    )  # fmt: skip


def _copies(line: Timeline, splits: Sequence[RankSplit]) -> Finding | None:
    """Copies between host and device that nothing covers."""
    exposed = [split for split in splits if split.exposed_copy_s >= IDLE * split.window_s > 0]
    if not exposed:
        return None
    worst = max(exposed, key=lambda split: split.exposed_copy_s)
    own = (line.kind == Kind.COPY) & (line.rank == worst.rank)
    took = np.bincount(line.name[own], (line.end - line.start)[own], len(line.names))
    moved = np.bincount(line.name[own], np.maximum(line.size[own], 0), len(line.names))
    main = int(took.argmax())
    rate = moved[main] / took[main] if took[main] else 0.0
    share = worst.exposed_copy_s / worst.window_s
    return Finding(
        kind="exposed copies",
        ranks=tuple(split.rank for split in exposed),
        stages=(),
        cause=(
            f"copies that no compute covers take {share:.0%} of the time on rank {worst.rank}, mostly "
            f"{line.names[main]!r} ({bytes_text(moved[main])} at {rate:.1f} GB/s)"
        ),
        evidence={
            "exposed_copy_s": {split.rank: split.exposed_copy_s for split in splits},
            "copies": {
                line.names[at]: {"seconds": took[at] / 1e9, "bytes": int(moved[at])} for at in np.flatnonzero(took)
            },
        },
        cost_s_per_step=worst.exposed_copy_s,
        share=share,
        confidence="high",
        change={},
        predicted_gain=None,
        verify="pin the host memory and copy ahead on a stream of its own (non_blocking=True); capture again",
    )  # fmt: skip


def _one_stream(line: Timeline, splits: Sequence[RankSplit]) -> Finding | None:
    """Communication that lies on the very streams that compute cannot be covered, whatever the settings say."""
    comm, busy = line.kind == Kind.COMMUNICATION, line.kind == Kind.COMPUTE
    shared = np.isin(line.stream[comm], np.unique(line.stream[busy]))
    exposed = [split for split in splits if split.exposed_comm_s >= EXPOSED * split.window_s > 0]
    overlapped = sum(split.comm_s - split.exposed_comm_s for split in splits)
    if not len(shared) or not shared.all() or not exposed or overlapped > 0.01 * sum(s.comm_s for s in splits):
        return None
    worst = max(exposed, key=lambda split: split.exposed_comm_s)
    share = worst.exposed_comm_s / worst.window_s
    return Finding(
        kind="no overlap",
        ranks=tuple(split.rank for split in exposed),
        stages=(),
        cause=(
            f"all {int(comm.sum())} communication kernels run on the streams that compute, so that none of their "
            f"{seconds_text(worst.exposed_comm_s)} (rank {worst.rank}) is covered"
        ),
        evidence={
            "overlapped_share": 0.0 if not overlapped else overlapped / sum(split.comm_s for split in splits),
            "exposed_comm_s": {split.rank: split.exposed_comm_s for split in splits},
            "shared_streams": sorted({int(stream) for stream in line.stream[comm]}),
        },
        cost_s_per_step=worst.exposed_comm_s,
        share=share,
        confidence="high",
        change={},
        predicted_gain=(0.0, share / 2, share),
        verify="give the collectives a stream of their own (async_op=True, then wait where the result is needed)",
    )  # fmt: skip
