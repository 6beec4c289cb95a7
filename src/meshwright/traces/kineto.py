"""torch.profiler (Kineto) traces, one file a rank, as one Timeline."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.timeline.columns import Timeline, concatenate
from meshwright.traces.document import Document, read_document
from meshwright.traces.events import rank_timeline

_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Traces:
    """Traces of one job: the timeline, what a reader of it must know, and the job's size where it is recorded.

    Times are nanoseconds since the earliest event of all files.
    """

    timeline: Timeline
    notes: tuple[str, ...]
    world_size: int | None


def read_kineto(paths: Sequence[Path | str]) -> Traces:
    """Read trace files (.json or .json.gz), or folders of them, as one timeline.

    A file's rank is what `distributedInfo` says, else the number after "rank" or "worker" in its name, never a guess;
    its `baseTimeNanoseconds` is added to all its times. Notes name repaired files, missing ranks, unclassified
    kernels, kernels without a launch record, and ranks whose device activity was not recorded.
    Raises InputError when a file cannot be read, has no rank beside others, or two files are of the same rank.
    """
    files = _files(paths)
    notes: list[str] = []
    documents: dict[int, tuple[Path, Document]] = {}
    complaints = []
    for path in files:
        document, repaired = read_document(path)
        notes += repaired
        rank = _rank_of(path, document, alone=len(files) == 1, notes=notes)
        if rank is None:
            rule = "the file says no rank, in distributedInfo or in its name"
            complaints.append(Complaint("", "", rule, "name it ...rank3.json", str(path)))
        elif rank in documents:
            complaints.append(Complaint("", "", f"rank {rank} again, as in {documents[rank][0].name}", "", str(path)))
        else:
            documents[rank] = path, document
    if complaints:
        raise InputError(tuple(complaints))
    bases = {document.base_ns > 0 for _, document in documents.values()}
    if len(bases) > 1:
        notes.append("some files state the base of their times and some do not: ranks may not share a clock")
    parts, unclassified = [], Counter[str]()
    for rank, (path, document) in sorted(documents.items()):
        part, remarks, unknown = rank_timeline(rank, document)
        notes += [f"{path.name}: {remark}" for remark in remarks]
        unclassified.update(unknown)
        parts.append(part)
    timeline = concatenate(parts)
    sizes = {d.distributed.world_size for _, d in documents.values() if d.distributed and d.distributed.world_size}
    if len(sizes) > 1:
        notes.append(f"the files disagree about the number of ranks: {sorted(sizes)}")
    world = max(sizes) if sizes else None
    if world and (absent := sorted(set(range(world)) - set(documents))):
        notes.append(f"no trace of {len(absent)} of {world} ranks: {_ranges(absent)}")
    for name, count in unclassified.most_common(10):
        notes.append(f"unclassified: {count} kernels named {name[:120]!r} sound like communication and are on no list")
    if len(timeline):
        first = timeline.start.min()
        np.subtract(timeline.start, first, out=timeline.start)
        np.subtract(timeline.end, first, out=timeline.end)
    return Traces(timeline, tuple(notes), world)


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


def _rank_of(path: Path, document: Document, alone: bool, notes: list[str]) -> int | None:
    told = document.distributed.rank if document.distributed else None
    match = _RANK_IN_NAME.search(path.name)
    named = int(match.group(1)) if match else None
    if told is not None:
        if named is not None and named != told:
            notes.append(f"{path.name}: the trace says rank {told}, its name {named}; the trace is believed")
        return told
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
