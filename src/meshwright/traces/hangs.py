"""Evidence of a hang: which collectives each rank called, from flight recorder dumps and from logs."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.traces.opening import beginning, text_of
from meshwright.traces.safe_pickle import read_plain_pickle

_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d{1,7})", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"(\d{1,7})$")
_MOST = 2_000_000  # entries of one dump
MOST_RANKS = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One collective as one rank called it. `sizes` is the number of elements it gave in, -1 where not told."""

    sequence: int
    operation: str
    elements: int
    state: str  # scheduled, started, completed; empty where not told

    @property
    def signature(self) -> tuple[str, int]:
        """What must be the same on all ranks."""
        return self.operation, self.elements


@dataclass
class Hang:
    """All the evidence: calls by group and rank, the last sequence number that a rank had enqueued where a log says
    so, members of groups, ranks that were named as missing, and (joined, expected, seconds) of a start that failed."""

    calls: dict[str, dict[int, dict[int, Call]]] = field(default_factory=dict)
    enqueued: dict[str, dict[int, int]] = field(default_factory=dict)
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    named_missing: set[int] = field(default_factory=set)
    joined: tuple[int, int, float | None] | None = None
    waited_s: float | None = None
    world: int | None = None
    broken: dict[int, str] = field(default_factory=dict)  # rank -> the line that says its connection or process died
    notes: list[str] = field(default_factory=list)

    def add(self, group: str, rank: int, call: Call) -> None:
        """Keep a call; a number that comes twice keeps what happened last."""
        self.calls.setdefault(group, {}).setdefault(rank, {})[call.sequence] = call


def read_recorder(paths: Sequence[Path], hang: Hang) -> None:
    """Add flight recorder dumps, one file a rank, pickle or JSON. Raises InputError when one cannot be read, its rank
    is not known, or two are of the same rank."""
    seen: dict[int, Path] = {}
    for path in paths:
        head, _ = beginning(path)
        if head[:1] == b"\x80":
            dump: object = read_plain_pickle(path)
        else:
            try:
                dump = json.loads(text_of(path))
            except (ValueError, RecursionError) as error:
                raise bad_input(f"JSON that is damaged or cut off ({type(error).__name__})", file=str(path)) from error
        if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
            raise bad_input("no flight recorder dump: it has no entries", file=str(path))
        rank = dump.get("rank")
        named = _RANK_IN_NAME.search(path.name) or _LAST_NUMBER.search(path.stem)
        number = rank if _whole(rank) else int(named.group(1)) if named else None
        if number is None:
            raise bad_input("the dump says no rank, in it or in its name", file=str(path), legal="name it ..._rank_3")
        if number in seen:
            raise bad_input(f"rank {number} again, as in {seen[number].name}", file=str(path))
        seen[number] = path
        _dump(dump, number, hang)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_RANKS


def _dump(dump: dict[Any, Any], rank: int, hang: Hang) -> None:
    groups: dict[str, str] = {}
    config = dump.get("pg_config")
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            # Numbers of groups are given out by each process for itself; members tell the same group on every rank.
            ranks = _ranks(value.get("ranks"))
            name = f"{value.get('desc') or value.get('name') or key}"[:60]
            groups[str(key)] = name if not ranks else f"{name} {_brief(ranks)}"
            if ranks:
                hang.members[groups[str(key)]] = ranks
    odd = 0
    for entry in dump["entries"][:_MOST]:
        if not isinstance(entry, dict):
            odd += 1
            continue
        sequence = entry.get("collective_seq_id", entry.get("seq_id"))
        if not isinstance(sequence, int) or isinstance(sequence, bool) or entry.get("is_p2p") is True:
            odd += sequence is not None and entry.get("is_p2p") is not True
            continue
        process_group = entry.get("process_group")
        by_pair = process_group[0] if isinstance(process_group, list | tuple) and process_group else process_group
        group = groups.get(str(by_pair)) or groups.get(str(entry.get("pg_id"))) or str(by_pair or "default")[:60]
        name = str(entry.get("profiling_name", "")).removeprefix("nccl:").removeprefix("gloo:")[:60]
        hang.add(
            group, rank, Call(sequence, name, _elements(entry.get("input_sizes")), str(entry.get("state", ""))[:20])
        )
    if odd:
        hang.notes.append(f"rank {rank}: {odd} malformed entries of its dump were left out")
    if not dump["entries"]:
        hang.notes.append(f"rank {rank}: its dump has no entries (TORCH_NCCL_TRACE_BUFFER_SIZE was not set?)")
    hang.calls.setdefault(next(iter(hang.calls), "default"), {}).setdefault(rank, {})


def _brief(ranks: Sequence[int]) -> str:
    shown = ",".join(map(str, ranks[:8]))
    return f"[{shown}{',…' + str(ranks[-1]) if len(ranks) > 8 else ''}]"


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        value = [int(text) for text in re.findall(r"\d{1,7}", value)[:MOST_RANKS]]
    if not isinstance(value, list | tuple):
        return ()
    return tuple(sorted({rank for rank in value if _whole(rank)}))


def _elements(sizes: object) -> int:
    """The elements of all tensors of [[2, 3], [4]]; -1 where not told or malformed."""
    if not isinstance(sizes, list | tuple):
        return -1
    total = 0
    for shape in sizes[:10_000]:
        count = 1
        for size in shape if isinstance(shape, list | tuple) else [shape]:
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
                return -1
            count = min(count * size, 1 << 62)
        total += count
    return total


def merge_logs(paths: Sequence[Path], hang: Hang) -> None:
    """Add what logs say: watchdog lines, failed barriers, lost connections, and starts where not all joined."""
    from meshwright.traces.hangs_text import read_lines

    for path in paths:
        named = _RANK_IN_NAME.search(path.name)
        read_lines(lines_of(path), int(named.group(1)) if named else None, hang)


def lines_of(path: Path) -> Iterable[str]:
    """The lines of a log, however long the file, each cut at 4,000 characters."""
    head, _ = beginning(path)
    if not head:
        return
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                yield from (line[:4000] for line in text_of(path).splitlines())
                return
            file.seek(0)
            while raw := file.readline(1 << 16):
                yield raw.decode("utf-8", "replace")[:4000].rstrip("\r\n")
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error
