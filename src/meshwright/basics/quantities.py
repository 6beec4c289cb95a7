"""Quantities with units: parsing what people write, printing what they read. GiB is 2^30 bytes, GB is 10^9."""

import math
import re

from meshwright.basics.errors import bad_input

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_BYTE_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
}  # fmt: skip
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def _parse(text: str, units: dict[str, int], field: str, what: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None or match.group(2).lower() not in units:
        legal = "for example " + ", ".join(f"12{unit}" for unit in list(units)[1:4])
        raise bad_input(f"must be {what}", field=field, value=repr(text), legal=legal)
    return float(match.group(1)) * units[match.group(2).lower()]


def parse_bytes(text: str, field: str = "") -> int:
    """Bytes in "786.00MiB", "40GB" or "1024". Raises InputError for anything else."""
    return round(_parse(text, _BYTE_UNITS, field, "a size in bytes"))


def parse_count(text: str, field: str = "") -> int:
    """The number in "1.2B", "350M" or "7000000". Raises InputError for anything else."""
    return round(_parse(text, _COUNT_UNITS, field, "a count"))


def gib(n_bytes: float) -> str:
    """`12.3 GiB`, always with the unit."""
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes < 100 * GIB else f"{n_bytes / GIB:.0f} GiB"


def bytes_text(n_bytes: float) -> str:
    """The size in the binary unit that reads best: `786.00 MiB`."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if n_bytes >= size:
            return f"{n_bytes / size:.2f} {unit}"
    return f"{n_bytes:.0f} B"


def seconds_text(seconds: float) -> str:
    """`830 µs`, `12.4 ms`, `3.21 s`, `2 h 05 min`."""
    if not math.isfinite(seconds):
        return "unknown"
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.1f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.2f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 120 else f"{int(minutes // 60)} h {int(minutes % 60):02d} min"


def count_text(n: float) -> str:
    """`1.21 B`, `7.3 M`, `512`."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n:g}"
