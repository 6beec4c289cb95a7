"""Lines of NCCL's and gloo's watchdogs, of barriers and of rendezvous, as evidence of a hang."""

import re
from collections.abc import Iterable

from meshwright.traces.hangs import MOST_RANKS, Call, Hang

_RANK = re.compile(r"\[(?:[^\[\]]{0,80}\s)?[Rr]ank\s?(\d{1,7})\]|\brank[ =:]+(\d{1,7})\b|^\s*\[?rank(\d{1,7})\]?:")
_GROUP = re.compile(r"PG (?:ID )?(\w+)(?: PG)? ?(?:GUID )?([\w()]*)")
_TIMEOUT = re.compile(
    r"timeout: Work\w{0,8}\(\s*SeqNum\s*=\s*(\d{1,15})\s*,\s*OpType\s*=\s*(\w+)"
    r"(?:\s*,\s*NumelIn\s*=\s*(\d{1,18}))?"
)
_LIMIT = re.compile(r"Timeout\(ms\)\s*=\s*(\d{1,12})")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d{1,15})")
_BARRIER = re.compile(r"[Rr]anks? ([\d,\s]{1,4000}?)\s*failed to pass monitoredBarrier")
_JOINED = re.compile(r"(?:after (\d{1,9}) (?:seconds|s)\b.{0,80})?\b(\d{1,7})\s*/\s*(\d{1,7}) clients joined")
_WORLD = re.compile(r"\bnranks[ =](\d{1,7})\b|world[_ ]size[ =:]+(\d{1,7})\b", re.IGNORECASE)
_LOST = re.compile(
    r"Connection (?:closed|reset) by peer|Socket Timeout|remote process exited|ncclRemoteError|SIGKILL|Signal 9|"
    r"exitcode\s*:?\s*-?\d+|ran for \d+ milliseconds before timing out|unbound_buffer|Timed out waiting \d+ms"
)
_GLOO = re.compile(r"Timed out waiting (\d{1,12})ms")
_KILLED = re.compile(r"exitcode\s*:?\s*-?[1-9]\d*|SIGKILL|Signal 9|remote process exited|Connection (?:closed|reset)")

_WORTH = (
    "timeout", "work:", "monitoredbarrier", "joined", "nranks", "world", "connection", "exit", "sigkill", "signal",
    "waiting", "timed out",
)  # fmt: skip
"""What any line that is looked into holds: most lines of a log are about something else."""


def read_lines(lines: Iterable[str], rank_of_file: int | None, hang: Hang) -> None:
    """Add what the lines of one log say; the rank is the line's own, else the file's."""
    for line in lines:
        lower = line.lower()
        if not any(word in lower for word in _WORTH):  # ten times as fast as one expression that ignores case
            continue
        if joined := _JOINED.search(line):
            waited = float(joined.group(1)) if joined.group(1) else None
            now = int(joined.group(2)), int(joined.group(3)), waited
            if hang.joined is None or now[0] >= hang.joined[0]:
                hang.joined = now
        if barrier := _BARRIER.search(line):
            named = [int(text) for text in re.findall(r"\d{1,7}", barrier.group(1))]
            hang.named_missing.update(rank for rank in named if rank < MOST_RANKS)
        if world := _WORLD.search(line):
            hang.world = max(hang.world or 0, min(MOST_RANKS, int(world.group(1) or world.group(2))))
        found = _RANK.search(line)
        own = next((int(text) for text in found.groups() if text), None) if found else rank_of_file
        if own is None or own >= MOST_RANKS:
            continue
        group = _group(line)
        if work := _TIMEOUT.search(line):
            sequence, operation, elements = work.groups()
            hang.add(group, own, Call(int(sequence), operation, int(elements) if elements else -1, "started"))
            if limit := _LIMIT.search(line):
                hang.waited_s = max(hang.waited_s or 0.0, int(limit.group(1)) / 1e3)
        if last := _ENQUEUED.search(line):
            table = hang.enqueued.setdefault(group, {})
            table[own] = max(table.get(own, 0), int(last.group(1)))
        if lasted := _GLOO.search(line):
            hang.waited_s = max(hang.waited_s or 0.0, int(lasted.group(1)) / 1e3)
        if _LOST.search(line) and _KILLED.search(line) and own not in hang.broken:
            hang.broken[own] = " ".join(line.split())[:200]


def _group(line: str) -> str:
    """The group a watchdog line is of, "default" where it does not say."""
    found = _GROUP.search(line)
    if not found:
        return "default"
    name = found.group(2).strip("()") if found.group(2) else ""
    return "default" if not name or "default" in name else name
