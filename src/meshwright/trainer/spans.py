"""Spans of one rank, collected while a step runs and handed over as a Timeline."""

from collections.abc import Sequence

from meshwright.basics.figures import Mode
from meshwright.timeline.columns import Action, Kind, Timeline, build

_COLUMNS = ("start", "end", "kind", "action", "name", "group", "sequence", "size", "stage", "micro_batch", "step")


class SpanRecorder:
    """Appends spans when `on`; times are nanoseconds of the host's monotonic clock, which all its ranks share."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.on = False
        self.step = -1
        self._rows: list[tuple[int, ...]] = []
        self._names: dict[str, int] = {}
        self._groups: dict[tuple[int, ...], int] = {}
        self._sequences: dict[tuple[int, ...], int] = {}

    def add(
        self, start: int, end: int, kind: Kind, name: str, *, action: Action = Action.NONE, group: Sequence[int] = (),
        size: int = -1, stage: int = -1, micro_batch: int = -1, collective: bool = False,
    ) -> None:  # fmt: skip
        """One span. A collective is numbered within its group, so that its spans match across ranks."""
        members = tuple(group)
        sequence = -1
        if collective:  # counted whether recording or not: numbers must agree between ranks
            sequence = self._sequences.get(members, 0)
            self._sequences[members] = sequence + 1
        if not self.on:
            return
        group_id = self._groups.setdefault(members, len(self._groups)) if members else -1
        name_id = self._names.setdefault(name, len(self._names))
        row = (start, max(start, end), kind, action, name_id, group_id, sequence, size, stage, micro_batch, self.step)
        self._rows.append(row)

    def clear(self) -> None:
        """Forget the spans recorded so far; numbering goes on."""
        self._rows.clear()

    def timeline(self, mode: Mode, time_scale: float) -> Timeline:
        """All spans as a Timeline of this rank."""
        values = list(zip(*self._rows, strict=True)) or [()] * len(_COLUMNS)
        columns = dict(zip(_COLUMNS, values, strict=True))
        return build(
            {"rank": [self.rank] * len(self._rows), **columns}, names=tuple(self._names), groups=tuple(self._groups),
            recorded=(self.rank,), mode=mode, time_scale=time_scale,
        )  # fmt: skip
