"""Which spans of different ranks are the same collective."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.timeline.columns import Kind, Timeline


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over the ranks that took part; `spans[rank]` is the index of its span in the timeline."""

    group: tuple[int, ...]  # members, or the ranks seen where the trace recorded no group
    name: str
    number: int  # the recorded sequence number, or the place in the order on each rank
    spans: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Matches:
    """Collectives seen on every recorded member, and those that are not, with the reasons in words."""

    whole: tuple[Collective, ...]
    partial: tuple[Collective, ...]
    inferred: bool  # some were matched by order, because no sequence numbers were recorded
    notes: tuple[str, ...]


def match_collectives(timeline: Timeline) -> Matches:
    """Match communication spans over ranks.

    By (group, sequence number) where recorded; otherwise by the order of equal (group, name, size) on each rank, and
    the result says that this is inferred. Nothing is guessed where ranks have different counts: then the collectives
    of that key are partial, and a note names ranks and counts.
    """
    index = np.flatnonzero(timeline.kind == Kind.COMMUNICATION)
    index = index[np.argsort(timeline.start[index], kind="stable")]
    keyed: dict[tuple[int, int, int, int], dict[int, list[int]]] = {}
    for span in index.tolist():
        key = _key(timeline, span)
        keyed.setdefault(key, {}).setdefault(int(timeline.rank[span]), []).append(span)
    recorded = set(timeline.recorded)
    whole: list[Collective] = []
    partial: list[Collective] = []
    notes: list[str] = []
    inferred = False
    many = [
        key for key in keyed if key[0] >= 0 and len(timeline.groups[key[0]]) > 2 and _transfers(timeline, keyed[key])
    ]
    if many:
        count = sum(len(spans) for key in many for spans in keyed.pop(key).values())
        notes.append(f"{count} transfers inside larger groups do not say their peer: left unmatched")
    for (group_id, name_id, sequence, _), spans in keyed.items():
        group = timeline.groups[group_id] if group_id >= 0 else tuple(sorted(spans))
        expected = recorded & set(group)
        counts = {rank: len(spans.get(rank, [])) for rank in sorted(expected)}
        name = timeline.names[name_id] if name_id >= 0 else timeline.names[timeline.name[next(iter(spans.values()))[0]]]
        inferred |= sequence < 0
        if len(set(counts.values())) > 1:
            what = name if sequence < 0 else f"{name} number {sequence}"
            seen = ", ".join(f"rank {rank}: {count}" for rank, count in counts.items())
            notes.append(f"{what} of group {list(group)} was not seen equally often ({seen})")
        for k in range(max(len(list_) for list_ in spans.values())):
            found = {rank: list_[k] for rank, list_ in spans.items() if k < len(list_)}
            number = k if sequence < 0 else sequence
            even = len(set(counts.values())) == 1
            (whole if even else partial).append(Collective(group, name, number, found))
    if inferred:
        notes.insert(0, "some collectives carry no sequence number: matched by their order, which is inferred")
    return Matches(tuple(whole), tuple(partial), inferred, tuple(notes))


def _key(timeline: Timeline, span: int) -> tuple[int, int, int, int]:
    """(group, name, sequence, size), without name and size where a sequence number makes them superfluous."""
    group, sequence = int(timeline.group[span]), int(timeline.sequence[span])
    if group >= 0 and sequence >= 0:
        return group, -1, sequence, -1
    return group, int(timeline.name[span]), -1, int(timeline.size[span])


def _transfers(timeline: Timeline, spans: Mapping[int, list[int]]) -> bool:
    names = {timeline.names[timeline.name[span]] for own in spans.values() for span in own}
    return all(name.lower().strip("_").removeprefix("i").removeprefix("batch_") in ("send", "recv") for name in names)


def waits(timeline: Timeline, collective: Collective) -> dict[int, int]:
    """Nanoseconds each rank waited inside a collective for the last to arrive (clocks of one host agree)."""
    starts: NDArray[np.int64] = timeline.start[list(collective.spans.values())]
    last = int(starts.max())
    return {rank: last - int(timeline.start[span]) for rank, span in collective.spans.items()}
