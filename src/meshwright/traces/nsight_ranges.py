"""NVTX ranges of an Nsight Systems export: marked steps, and the calls that NCCL annotated."""

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from meshwright.traces.nsight_tables import Export

_STEP = re.compile(r"(?:ProfilerStep#|(?:train_?)?(?:step|iter|iteration)[ _:#=]*)(\d{1,9})", re.IGNORECASE)
_CALL = re.compile(r"nccl[A-Z]\w*")
_PUSH_POP, _START_END = 59, 60
_PID_SHIFT, _PID_MASK = 24, 0xFFFFFF


def ranges_of(export: Export, strings: dict[int, str], like: str) -> list[tuple[int, int, int, str]]:
    """(start, end, process, name) of NVTX ranges whose name matches a LIKE pattern.

    A name is the text in the row, else the one of StringIds: one file can use both.
    """
    if not export.has("NVTX_EVENTS"):
        return []
    have = export.columns("NVTX_EVENTS")
    if not {"start", "end", "eventType"} <= have or not have & {"text", "textId"}:
        return []
    wanted = [key for key, text in strings.items() if _like(text, like)]
    text = "text" if "text" in have else "null"
    clauses = ([f"text like '{like}'"] if "text" in have else []) + (
        [f"textId in ({','.join(map(str, wanted))})"] if wanted and "textId" in have else []
    )
    if not clauses:
        return []
    thread = "globalTid" if "globalTid" in have else "-1"
    rows = export.run(
        f'select start, "end", {thread}, {text}, {"textId" if "textId" in have else "null"} '
        f'from "{export.tables["NVTX_EVENTS"]}" where eventType in ({_PUSH_POP}, {_START_END}) '
        f'and "end" is not null and ({" or ".join(clauses)}) limit 5000000'
    )
    found = []
    for start, end, tid, own, key in rows:
        name = own if own is not None else strings.get(int(key)) if key is not None else None
        if name is not None and isinstance(start, int) and isinstance(end, int) and end >= start:
            pid = (tid >> _PID_SHIFT) & _PID_MASK if isinstance(tid, int) and tid >= 0 else -1
            found.append((start, end, pid, str(name)))
    return found


def _like(text: str, like: str) -> bool:
    return like.strip("%").lower() in text.lower()


def steps_of(
    export: Export, strings: dict[int, str], begun: NDArray[np.int64], process: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The marked step in which each span was launched; -1 outside them, and where fewer than two are marked."""
    steps = np.full(len(begun), -1, np.int32)
    marked: list[tuple[int, int, int, int]] = []
    for like in ("%step%", "%iter%"):
        for start, end, pid, name in ranges_of(export, strings, like):
            if match := _STEP.fullmatch(name.strip()):
                marked.append((start, end, pid, int(match.group(1))))
    if len({number for *_, number in marked}) < 2:
        return steps
    pids = np.where(process >= 0, (process >> _PID_SHIFT) & _PID_MASK, -1)
    for start, end, pid, number in marked:
        steps[(begun >= start) & (begun < end) & ((pids == pid) | (pids < 0) | (pid < 0))] = number
    return steps


def nccl_calls(export: Export, strings: dict[int, str]) -> Counter[str]:
    """How often each NCCL call was annotated (ncclSend, ncclAllReduce, ...)."""
    return Counter(name for *_, name in ranges_of(export, strings, "nccl%") if _CALL.fullmatch(name))
