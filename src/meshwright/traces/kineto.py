"""torch.profiler (Kineto) traces, one file a rank, as one Timeline."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.timeline.columns import Kind, Timeline, build, concatenate
from meshwright.traces.kineto_cache import cached, keep
from meshwright.traces.kineto_part import Part
from meshwright.traces.kineto_worker import read_parts

_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Traces:
    """Traces of one job: the timeline, what a reader of it must know, and the job's size where it is recorded.

    Times are nanoseconds since the earliest event of all files. `launch` [spans, 2] is the start and end of the call
    that launched each span of the timeline, -1 where none is recorded; `uses` says what groups (member ranks) are
    for, where the traces do; `events` counts all events read.
    """

    timeline: Timeline
    notes: tuple[str, ...]
    world_size: int | None
    launch: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    uses: dict[tuple[int, ...], str] = field(default_factory=dict)
    events: int = 0


def read_kineto(
    paths: Sequence[Path | str],
    *,
    cache: bool = True,
    workers: int | None = None,
    said: Callable[[str], None] = lambda _: None,
) -> Traces:
    """Read trace files (.json or .json.gz), or folders of them, as one timeline.

    A file's rank is what `distributedInfo` says, else the number after "rank" or "worker" in its name, never a guess;
    its `baseTimeNanoseconds` is added to all its times. Notes name repaired files, missing ranks, unclassified
    kernels, kernels without a launch record, and ranks whose device activity was not recorded. Large files are read
    side by side and `cache`d; `said` gets lines of progress.
    Raises InputError when a file cannot be read, has no rank beside others, or two files are of the same rank.
    """
    files = _files(paths)
    notes: list[str] = []
    parts: dict[int, tuple[Path, Part]] = {}
    complaints = []
    for path, part in _read(files, cache, workers, said):
        notes += part.notes
        rank = _rank_of(path, part, alone=len(files) == 1, notes=notes)
        if rank is None:
            rule = "the file says no rank, in distributedInfo or in its name"
            complaints.append(Complaint("", "", rule, "name it ...rank3.json", str(path)))
        elif rank in parts:
            complaints.append(Complaint("", "", f"rank {rank} again, as in {parts[rank][0].name}", "", str(path)))
        else:
            parts[rank] = path, part
    if complaints:
        raise InputError(tuple(complaints))
    return _joined(dict(sorted(parts.items())), notes)


def _read(
    files: Sequence[Path], cache: bool, workers: int | None, said: Callable[[str], None]
) -> Iterator[tuple[Path, Part]]:
    known = {file: part for file in files if (part := cached(file))} if cache else {}
    fresh = read_parts([file for file in files if file not in known], said, workers)
    if known:
        said(f"{len(known)} of {len(files)} traces from the cache")
    yield from known.items()
    for file, part in fresh:
        if cache:
            keep(file, part)
        yield file, part


def _joined(parts: dict[int, tuple[Path, Part]], notes: list[str]) -> Traces:
    if len({part.base_ns > 0 for _, part in parts.values()}) > 1:
        notes.append("some files state the base of their times and some do not: ranks may not share a clock")
    first = min((int(part.rows[:, 0].min()) + part.base_ns for _, part in parts.values() if len(part.rows)), default=0)
    lines, unclassified = [], Counter[str]()
    uses: dict[tuple[int, ...], str] = {}
    for rank, (path, part) in parts.items():
        notes += [f"{path.name}: {remark}" for remark in part.remarks]
        unclassified.update(part.unclassified)
        uses |= {part.groups[group]: use for group, use in part.uses.items()}
        lines.append(_line(rank, part, part.base_ns - first))
    sizes = {part.world_size for _, part in parts.values() if part.world_size}
    if len(sizes) > 1:
        notes.append(f"the files disagree about the number of ranks: {sorted(sizes)}")
    world = max(sizes) if sizes else None
    if world and (absent := sorted(set(range(world)) - set(parts))):
        notes.append(f"no trace of {len(absent)} of {world} ranks: {_ranges(absent)}")
    for name, count in unclassified.most_common(10):
        notes.append(f"unclassified: {count} kernels named {name[:120]!r} sound like communication and are on no list")
    launch = np.concatenate([
        np.where(part.launch < 0, -1, part.launch + (part.base_ns - first)) for _, part in parts.values()
    ])  # fmt: skip
    events = sum(part.seen for _, part in parts.values())
    return Traces(concatenate(lines), tuple(notes), world, launch, uses, events)


def _line(rank: int, part: Part, shift: int) -> Timeline:
    columns: dict[str, Sequence[int] | NDArray[np.generic]] = {
        name: part.rows[:, k]
        for k, name in enumerate(("start", "end", "kind", "name", "stream", "group", "sequence", "size"))
    }
    columns |= {"start": part.rows[:, 0] + shift, "end": part.rows[:, 1] + shift}
    columns |= {"rank": np.full(len(part.rows), rank, np.int32), "step": _steps(part)}
    return build(
        columns, names=part.names, groups=part.groups, recorded=(rank,) if len(part.rows) else (), mode="measured"
    )  # fmt: skip


def _steps(part: Part) -> NDArray[np.int32]:
    """The step of each span, -1 outside all: where it starts; or where it was launched, if steps are the host's.

    Device work without a launch record then goes with what ran before it; before the first launched span, to none.
    """
    starts, launched = part.rows[:, 0], part.launch[:, 0] >= 0
    if not (part.by_launch and launched.any() and len(part.steps)):
        return _inside(starts, part.steps)
    out = _inside(np.where(launched, part.launch[:, 0], starts), part.steps)
    device = np.flatnonzero(part.rows[:, 2] != Kind.HOST)
    device = device[np.argsort(starts[device], kind="stable")]
    latest = np.maximum.accumulate(np.where(launched[device], np.arange(len(device)), -1))
    filled = np.where(latest >= 0, out[device[np.maximum(latest, 0)]], -1)
    out[device] = np.where(launched[device], out[device], filled)
    return out


def _inside(times: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int32]:
    out = np.full(len(times), -1, np.int32)
    if len(steps) and len(times):
        at = np.searchsorted(steps[:, 0], times, side="right") - 1
        inside = (at >= 0) & (times < steps[np.maximum(at, 0), 1])
        out[inside] = steps[at[inside], 2]
    return out


def _files(paths: Sequence[Path | str]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz")))
            if not inside:
                raise bad_input("no .json or .json.gz file in this folder", file=str(path))
            found += inside
        else:
            found.append(path)
    if not found:
        raise bad_input("no trace given")
    return found


def _rank_of(path: Path, part: Part, alone: bool, notes: list[str]) -> int | None:
    match = _RANK_IN_NAME.search(path.name)
    named = int(match.group(1)) if match else None
    if part.rank is not None:
        if named is not None and named != part.rank:
            notes.append(f"{path.name}: the trace says rank {part.rank}, its name {named}; the trace is believed")
        return part.rank
    if named is None and alone:
        notes.append(f"{path.name}: no rank recorded; as the only file it is shown as rank 0")
        return 0
    return named


def _ranges(numbers: Sequence[int]) -> str:
    """3, 5-7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
