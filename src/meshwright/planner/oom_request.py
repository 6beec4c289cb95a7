"""What an out-of-memory message asks for: the size it prints, how precisely, and what else it says.

PyTorch's CUDA allocator rounds a tensor up to 512 bytes and asks the driver for a block: 2 MiB for up to 1 MiB, 20 MiB
for less than 10 MiB, whole multiples of 2 MiB above (c10/cuda/CUDACachingAllocator.cpp: kSmallBuffer, kLargeBuffer,
kRoundLarge). "Tried to allocate" is the block, printed with two decimals.
"""

import re
from dataclasses import dataclass

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import GIB, KIB, MIB, TIB

FIELD = "--oom"
_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_DECIMAL = {"kb": (10**3, KIB), "mb": (10**6, MIB), "gb": (10**9, GIB), "tb": (10**12, TIB)}
_SIZE = r"([0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)\s*(bytes|byte|[kmgt]ib|[kmgt]b|b)?"
_ALONE = re.compile(rf"\s*{_SIZE}\s*", re.IGNORECASE)
_TRIED = re.compile(rf"tried to allocate\s+{_SIZE}", re.IGNORECASE)
_GPU = re.compile(r"\b(?:GPU|NPU|XPU)\s+([0-9]+)", re.IGNORECASE)
_TOTAL = (
    re.compile(rf"total capacity of\s+{_SIZE}", re.IGNORECASE),
    re.compile(rf"{_SIZE}\s+total capacity", re.IGNORECASE),
)
_FREE = (
    re.compile(rf"of which\s+{_SIZE}\s+is free", re.IGNORECASE),
    re.compile(rf";\s*{_SIZE}\s+free", re.IGNORECASE),
)
_UNUSED = re.compile(rf"{_SIZE}\s+is reserved by PyTorch but unallocated", re.IGNORECASE)

_DIGITS = 30  # more are no size of anything
_SMALL, _SMALL_BLOCK, _MEDIUM, _MEDIUM_BLOCK, _LARGE_STEP, _STEP = MIB, 2 * MIB, 10 * MIB, 20 * MIB, 2 * MIB, 512


def block_bytes(size: int) -> int:
    """Bytes that the allocator asks the driver for when no cached block holds `size` bytes."""
    rounded = max(_STEP, -(-size // _STEP) * _STEP)
    if rounded <= _SMALL:
        return _SMALL_BLOCK
    return _MEDIUM_BLOCK if rounded < _MEDIUM else -(-rounded // _LARGE_STEP) * _LARGE_STEP


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the printed size: bytes, and how far off they may be by rounding."""

    size: int
    slack: float
    words: str  # as what it was read: "MiB" or "MB"

    def holds(self, n_bytes: int) -> bool:
        """Would `n_bytes` have been printed like this?"""
        return abs(n_bytes - self.size) <= self.slack


@dataclass(frozen=True, slots=True)
class Request:
    """A failed request. `readings` has a second entry where MB was written: many mean MiB by it. Device, capacity and
    free memory (bytes) stand only in a whole message; `unused` is what PyTorch held without using it."""

    readings: tuple[Reading, ...]
    gpu: int | None = None
    capacity: int | None = None
    free: int | None = None
    unused: int | None = None

    @property
    def size(self) -> int:
        """Bytes as written."""
        return self.readings[0].size


def _readings(number: str, unit: str | None) -> tuple[Reading, ...]:
    """Without decimals, two are taken: people leave out ".00"."""
    digits = number.replace(",", "")
    name = (unit or "").lower()
    value = float(digits)
    exact = name in ("", "b", "byte", "bytes")
    half = 0.0 if exact else 0.5 * 10.0 ** -(len(digits.partition(".")[2]) or 2)
    sizes = (
        [(f"{name[0].upper()}B", _DECIMAL[name][0]), (f"{name[0].upper()}iB", _DECIMAL[name][1])]
        if name in _DECIMAL
        else [(unit or "bytes", _UNITS[name])]
    )
    return tuple(Reading(round(value * each), half * each * (1 + 1e-9), words) for words, each in sizes)


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else _readings(match.group(1), match.group(2))[-1].size


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    return next((_bytes(match) for pattern in patterns if (match := pattern.search(text)) is not None), None)


def parse_request(text: str) -> Request:
    """The request in "786.00MiB", "2.38 GiB", "786 MB", "824180736", or a whole error message of PyTorch. Raises
    InputError for anything else, and for a size of nothing."""
    tried = _TRIED.search(text)
    match = tried or _ALONE.fullmatch(text)
    if match is None:
        raise bad_input(
            "must be the size that an error names, or the whole error message", field=FIELD,
            value=repr(text if len(text) <= 80 else text[:77] + "..."),
            legal="for example 786.00MiB, '2.38 GiB', or 'CUDA out of memory. Tried to allocate 786.00 MiB. GPU 3 ...'",
        )  # fmt: skip
    if len(match.group(1)) > _DIGITS:
        raise bad_input("no device has that much memory", field=FIELD, value=f"{match.group(1)[:20]}...")
    readings = _readings(match.group(1), match.group(2))
    if readings[0].size < 1:
        raise bad_input("a request of nothing cannot fail", field=FIELD, value=repr(match.group(0).strip()))
    if tried is None:
        return Request(readings)
    gpu = _GPU.search(text)
    return Request(
        readings, None if gpu is None else int(gpu.group(1)), _first(_TOTAL, text), _first(_FREE, text),
        _first((_UNUSED,), text),
    )  # fmt: skip
