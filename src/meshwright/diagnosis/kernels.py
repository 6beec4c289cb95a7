"""Proton trees: the scopes that take the time, and which of the device's limits they come near."""

from collections.abc import Sequence
from pathlib import Path

from meshwright.diagnosis.said import Said, counted
from meshwright.traces.proton import Limits, Scope, read_proton

_TOP = 20
_NEAR = 0.6  # of a limit: then it is what holds the kernel back


def diagnose_proton(paths: Sequence[Path]) -> Said:
    """A hot list for each tree. A tree has no times of day: nothing is said of gaps, overlap or steps.

    Raises InputError when one cannot be read.
    """
    tables: dict[str, object] = {}
    notes = ["Proton trees hold sums by call path, no timeline: idle time, overlap and steps cannot be said"]
    for path in paths:
        tree = read_proton(path)
        notes += tree.notes
        total = sum(scope.seconds for scope in tree.scopes)
        if not tree.scopes:
            notes.append(f"{path.name}: no scope took time on a device")
        hottest = sorted(tree.scopes, key=lambda scope: scope.seconds, reverse=True)[:_TOP]
        tables[str(path)] = {
            "device_s": total,
            "hot": [_row(scope, total, tree.devices.get(scope.device)) for scope in hottest],
        }
        without = sum(scope.seconds for scope in tree.scopes if scope.flops is None and scope.bytes is None)
        if total and without:
            notes.append(
                f"{path.name}: {without / total:.0%} of the time is in scopes that counted neither FLOPs nor bytes: "
                "memory- or compute-bound cannot be said of them"
            )
    return Said(counted(len(tables), "Proton tree"), tables=tables, abstained=tuple(notes))


def _row(scope: Scope, total: float, limits: Limits | None) -> dict[str, object]:
    peak = limits.bytes_per_s if limits else None
    moved = None if scope.bytes is None else scope.bytes / scope.seconds
    share = None if moved is None or not peak else moved / peak
    return {
        "scope": " > ".join(scope.path[-4:]) or "(root)", "seconds": scope.seconds, "share": scope.seconds / total,
        "calls": scope.count, "flops_per_s": None if scope.flops is None else scope.flops / scope.seconds,
        "bytes_per_s": moved, "share_of_memory_limit": share, "device": scope.device,
        "s_per_call": scope.seconds / scope.count, "width_bits": scope.width,
        "flops_per_byte": None if not scope.flops or not scope.bytes else scope.flops / scope.bytes,
        "bound": None if share is None else "memory" if share >= _NEAR else "not memory",
    }  # fmt: skip
