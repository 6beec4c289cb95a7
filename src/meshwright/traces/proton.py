"""Proton trees (hatchet JSON): device time by call path, without times of day."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.traces.opening import text_of

_OVERHEAD = "__proton_launch_metadata"
_MOST_NODES = 5_000_000
_TIMES = {"time (ns)": 1e-9, "time (us)": 1e-6, "time (ms)": 1e-3, "time (s)": 1.0}


@dataclass(frozen=True, slots=True)
class Scope:
    """One call path that ran on a device: seconds and calls of its own; FLOPs by width in bits and bytes moved are None
    where neither it nor a parent counted them."""

    path: tuple[str, ...]
    device: str  # "CUDA 0"
    seconds: float
    count: int
    flops: float | None
    width: int | None
    bytes: float | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device could move: bytes a second, from clock (kHz) and bus width (bits); None where not recorded."""

    arch: str
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Tree:
    """One file."""

    scopes: tuple[Scope, ...]
    devices: dict[str, Limits]
    notes: tuple[str, ...]


def read_proton(path: Path) -> Tree:
    """Read one tree. FLOPs or bytes of a parent without time of its own belong to its only timed child.

    Raises InputError when the file is no hatchet JSON.
    """
    try:
        found = json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise bad_input(f"JSON that is damaged or cut off ({type(error).__name__})", file=str(path)) from error
    if not isinstance(found, list) or not found or not isinstance(found[0], dict):
        raise bad_input("no Proton tree: it should be a list of a root and its devices", file=str(path))
    scopes: list[Scope] = []
    skipped = odd = 0
    stack: list[tuple[dict[Any, Any], tuple[str, ...], dict[str, float]]] = [(found[0], (), {})]
    for _ in range(_MOST_NODES):
        if not stack:
            break
        node, above, counted = stack.pop()
        frame, metrics = node.get("frame"), node.get("metrics")
        if not isinstance(frame, dict) or not isinstance(metrics, dict):
            odd += 1
            continue
        name = str(frame.get("name", ""))[:200]
        if name == _OVERHEAD:
            skipped += 1
            continue
        here = (*above, name) if above or name != "ROOT" else above
        work = {key: number for key, value in metrics.items() if (number := _positive(value)) and _counts(key)}
        time = next((scale * t for key, scale in _TIMES.items() if (t := _positive(metrics.get(key)))), None)
        if time is not None:
            scopes.append(_scope(here, metrics, time, work or counted))
        below = node.get("children")
        children = [child for child in below if isinstance(child, dict)] if isinstance(below, list) else []
        passed = work if len(children) == 1 and time is None else {}
        stack += [
            (child, here, passed or (counted if len(children) == 1 and time is None else {})) for child in children
        ]
    notes = [f"{path.name}: {skipped} subtrees of the profiler's own work were left out"] if skipped else []
    notes += [f"{path.name}: {odd} malformed nodes were left out"] if odd else []
    return Tree(tuple(scopes), _devices(found[1:]), tuple(notes))


def _counts(key: object) -> bool:
    return key == "bytes" or (isinstance(key, str) and key.startswith("flops"))


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
        return None
    return float(value)


def _scope(path: tuple[str, ...], metrics: dict[Any, Any], seconds: float, work: dict[str, float]) -> Scope:
    widths = [(key, int(key.removeprefix("flops") or 0)) for key in work if key.removeprefix("flops").isdigit()]
    key, width = max(widths, key=lambda pair: work[pair[0]], default=("flops", 0))
    kind = metrics.get("device_type")
    device = f"{kind if kind is not None else 'device'} {metrics.get('device_id', 0)}"[:40]
    count = _positive(metrics.get("count"))
    return Scope(path, device, seconds, int(count or 1), work.get(key), width or None, work.get("bytes"))


def _devices(found: list[Any]) -> dict[str, Limits]:
    limits: dict[str, Limits] = {}
    for group in found:
        for kind, numbered in group.items() if isinstance(group, dict) else ():
            for number, about in numbered.items() if isinstance(numbered, dict) else ():
                if isinstance(about, dict):
                    clock, bus = _positive(about.get("memory_clock_rate")), _positive(about.get("bus_width"))
                    # Both edges of the memory clock carry data.
                    rate = 2 * clock * 1e3 * bus / 8 if clock and bus else None
                    limits[f"{kind} {number}"[:40]] = Limits(str(about.get("arch", ""))[:20], rate)
    return limits
