"""Hangs: which rank never came, where calls first differ, and whether one call too many or too few explains it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.diagnosis.said import Said, counted
from meshwright.files.findings import Finding
from meshwright.files.setup import Setup
from meshwright.traces.hangs import Call, Hang, merge_logs, read_recorder

_MAY_DIFFER = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "broadcast", "coalesced", "barrier")
"""Operations whose sizes may differ between ranks, or say nothing; all-gather and reduce-scatter must agree."""

_AT_LEAST = 2  # calls that must match after a shift


@dataclass(frozen=True, slots=True)
class Difference:
    """The first sequence number at which the ranks of a group do not agree, and who said what."""

    sequence: int
    parties: tuple[tuple[tuple[str, int], tuple[int, ...]], ...]  # (operation, elements) -> ranks, most first

    @property
    def tied(self) -> bool:
        """Are there two largest parties?"""
        return len(self.parties[0][1]) == len(self.parties[1][1])

    @property
    def culprits(self) -> tuple[int, ...]:
        """The minority; all ranks where there is none."""
        chosen = self.parties if self.tied else self.parties[1:]
        return tuple(sorted(rank for _, ranks in chosen for rank in ranks))


def diagnose_hangs(recorder: Sequence[Path], logs: Sequence[Path], setup: Setup | None) -> Said:
    """What dumps and logs say of a hang. Raises InputError when one cannot be read."""
    hang = Hang()
    read_recorder(recorder, hang)
    merge_logs(logs, hang)
    if setup is not None:
        hang.world = max(hang.world or 0, setup.proposal.cluster.gpus)
    notes = list(hang.notes)
    findings = [*_start(hang), *_named(hang)]
    for group in dict.fromkeys([*hang.calls, *hang.enqueued]):
        findings += _group(group, hang, notes)
    if hang.broken and not findings:
        findings.append(_died(hang))
    elif hang.broken:
        notes.append(f"ranks {sorted(hang.broken)[:16]} report a lost connection or process: a sequel, or the cause")
    if not findings and (recorder or hang.calls):
        notes.append("the calls of all ranks agree as far as they were recorded: no hang is seen in them")
    figures = {
        "groups": {
            group: {"last_sequence": {rank: max(calls, default=None) for rank, calls in sorted(ranks.items())}}
            for group, ranks in hang.calls.items()
        }
    }  # fmt: skip
    name = "hang" if findings or recorder else ""
    return Said(
        f"{counted(len(recorder), 'flight recorder dump')}, {counted(len(logs), 'log')}",
        tables={name: figures} if name else {}, findings=tuple(findings), abstained=tuple(notes),
    )  # fmt: skip


def first_difference(calls: Mapping[int, Mapping[int, Call]]) -> Difference | None:
    """The first sequence number that two ranks called differently, among those that every such rank still remembers.

    Recorders are rings: what the oldest entry of a rank precedes is not compared with it.
    """
    told = {rank: own for rank, own in calls.items() if own}
    if len(told) < 2:
        return None
    begins = max(min(own) for own in told.values())
    for sequence in sorted({number for own in told.values() for number in own if number >= begins}):
        said: dict[tuple[str, int], list[int]] = {}
        for rank, own in told.items():
            if sequence in own:
                said.setdefault(_comparable(own[sequence]), []).append(rank)
        if len({name for name, _ in said}) > 1 or len(said) > 1:
            parties = sorted(said.items(), key=lambda item: (-len(item[1]), item[1]))
            return Difference(sequence, tuple((key, tuple(sorted(ranks))) for key, ranks in parties))
    return None


def _comparable(call: Call) -> tuple[str, int]:
    """What must agree: the operation, and its size unless that may differ."""
    name = call.operation.lower()
    free = any(word in name for word in _MAY_DIFFER) and "all_gather" not in name and "allgather" not in name
    free = free and "reduce_scatter" not in name and "reducescatter" not in name
    return call.operation, -1 if free else call.elements


def shift_of(own: Mapping[int, Call], others: Mapping[int, Call], sequence: int) -> int:
    """+1: `own` from `sequence` on is what the others called one earlier (an extra call before); -1: one later (a call
    is missing); 0: neither shift makes them match."""
    for shift in (1, -1):
        pairs = [
            (_comparable(call), _comparable(others[number - shift]))
            for number, call in own.items()
            if number - shift in others and number >= sequence + max(0, shift)
        ]
        if len(pairs) >= _AT_LEAST and all(a == b for a, b in pairs) and len(set(pairs)) > 1:
            return shift
    return 0


def _group(group: str, hang: Hang, notes: list[str]) -> list[Finding]:
    calls = hang.calls.get(group, {})
    found = first_difference(calls)
    if found is not None:
        return [_mismatch(group, found, calls)]
    last = {rank: max(own) for rank, own in calls.items() if own}
    last |= {rank: max(number, last.get(rank, 0)) for rank, number in hang.enqueued.get(group, {}).items()}
    if not last:
        return []
    stuck = [
        number
        for rank, own in calls.items()
        for number, call in own.items()
        if call.state != "completed" and last[rank] == number
    ]
    at = max(stuck, default=max(last.values()))
    members = hang.members.get(group) or (tuple(range(hang.world)) if hang.world and group == "default" else ())
    behind = tuple(sorted(rank for rank, number in last.items() if number < at))
    silent = tuple(rank for rank in members if rank not in last)
    if not stuck and not behind:
        return []
    if not behind and not silent:
        known = "" if members else ": give the logs of all ranks, or --job, to learn which one never came"
        notes.append(f"group {group}: all ranks seen wait in collective {at}{known}")
        return [] if members else [_waits(group, at, tuple(sorted(last)), hang)]
    return [_missing(group, at, behind, silent, last, calls, hang)]


def _mismatch(group: str, found: Difference, calls: Mapping[int, Mapping[int, Call]]) -> Finding:
    (operation, elements), majority = found.parties[0]
    names = {name for (name, _), _ in found.parties}
    kind = "order of collectives differs" if len(names) > 1 else "sizes differ in a collective"
    culprits = () if found.tied else found.culprits
    shifts = {rank: shift_of(calls[rank], calls[majority[0]], found.sequence) for rank in culprits}
    words = {1: "an extra call before it", -1: "a missing call before it"}
    told = [f"{name} of {_count(size)} on {_listed(ranks)}" for (name, size), ranks in found.parties]
    reason = ""
    if culprits and len(set(shifts.values())) == 1 and (shift := next(iter(shifts.values()))):
        reason = f"; moved by one call their lists match: {words[shift]} on {_listed(culprits)}"
    elif culprits:
        reason = "; moving their lists by one call does not make them match"
    who = "no majority, both sides are shown" if found.tied else f"the odd ones out are {_listed(culprits)}"
    return _finding(
        kind, culprits,
        f"group {group}: ranks first differ at collective {found.sequence}: {'; '.join(told[:6])}; {who}{reason}",
        {
            "group": group, "first_difference": found.sequence, "operation": operation, "elements": elements,
            "parties": [
                {"operation": name, "elements": None if size < 0 else size, "ranks": list(ranks)[:256]}
                for (name, size), ranks in found.parties
            ],
            "shift": shifts, "tied": found.tied,
        },
        "high" if not found.tied else "medium",
        "find what these ranks did differently before that call (a branch on data, rank or loss), then run again",
    )  # fmt: skip


def _missing(
    group: str, at: int, behind: tuple[int, ...], silent: tuple[int, ...], last: Mapping[int, int],
    calls: Mapping[int, Mapping[int, Call]], hang: Hang,
) -> Finding:  # fmt: skip
    waiting = [rank for rank, number in last.items() if number >= at]
    names = Counter(calls[rank][at].operation for rank in waiting if rank in calls and at in calls[rank])
    name = names.most_common(1)[0][0] if names else "collective"
    parts = [f"{_listed(tuple(sorted(waiting)))} {'waits' if len(waiting) == 1 else 'wait'} in {name} number {at}"]
    if behind:
        parts.append(f"{_listed(behind)} never came (last {', '.join(str(last[rank]) for rank in behind[:8])})")
    if silent:
        parts.append(f"nothing is known of {_listed(silent)}: dead, never started, or their files are not among these")
    if broken := [rank for rank in (*behind, *silent) if rank in hang.broken]:
        parts.append(f"rank {broken[0]} says: {hang.broken[broken[0]]}")
    return _finding(
        "rank never came", behind or silent, f"group {group}: {'; '.join(parts)}",
        {"group": group, "sequence": at, "operation": name, "never_came": list(behind), "silent": list(silent)[:256],
         "waiting": sorted(waiting)[:256], "waited_s": hang.waited_s},
        "high" if behind else "medium",
        "look at what that rank did last (py-spy dump, its own log), and run with TORCH_NCCL_TRACE_BUFFER_SIZE=2000",
    )  # fmt: skip


def _waits(group: str, at: int, ranks: tuple[int, ...], hang: Hang) -> Finding:
    return _finding(
        "hang", (), f"group {group}: {_listed(ranks)} timed out in collective {at}; whom they waited for is not in "
        "these files", {"group": group, "sequence": at, "waiting": list(ranks)[:256], "waited_s": hang.waited_s}, "low",
        "give the logs or flight recorder dumps of every rank",
    )  # fmt: skip


def _start(hang: Hang) -> list[Finding]:
    if hang.joined is None or hang.joined[0] >= hang.joined[1]:
        return []
    joined, expected, seconds = hang.joined
    waited = f" after {seconds:g} s" if seconds is not None else ""
    return [
        _finding(
            "missing at start-up", (),
            f"{joined} of {expected} processes had joined{waited}: {expected - joined} never reached the rendezvous",
            {"joined": joined, "expected": expected, "missing": expected - joined, "waited_s": seconds}, "high",
            "check that every node started with the same address, port and number of nodes, and reaches the first",
        )
    ]  # fmt: skip


def _named(hang: Hang) -> list[Finding]:
    if not hang.named_missing:
        return []
    ranks = tuple(sorted(hang.named_missing))
    return [
        _finding("rank never came", ranks, f"{_listed(ranks)} did not reach the monitored barrier",
                 {"ranks": list(ranks)}, "high", "look at what that rank did last (py-spy dump, its own log)")
    ]  # fmt: skip


def _died(hang: Hang) -> Finding:
    rank = min(hang.broken)
    return _finding(
        "rank died", tuple(sorted(hang.broken)), f"rank {rank}: {hang.broken[rank]}", {"lines": dict(hang.broken)},
        "low", "the first rank to fail is the cause: look for its own error above that line",
    )  # fmt: skip


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}{f' and {len(ranks) - 8} more' if len(ranks) > 8 else ''}"


def _count(elements: int) -> str:
    return "unstated size" if elements < 0 else f"{elements:,} elements"


def _finding(
    kind: str, ranks: tuple[int, ...], cause: str, evidence: dict[str, object], confidence: str, verify: str
) -> Finding:
    return Finding(
        kind=kind, ranks=ranks, stages=(), cause=cause, evidence=evidence, cost_s_per_step=None, share=1.0,
        confidence=confidence, change={}, predicted_gain=None, verify=verify,  # type: ignore[arg-type]
    )  # fmt: skip
