"""Find a row of a data file by any name that people, drivers and vendors write for it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.basics.errors import InputError, bad_input
from meshwright.basics.names import nearest

_MAKERS = re.compile(r"^(nvidia|amd instinct|amd|instinct)\s+")
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_SIZE_GB = re.compile(r"(\d+)\s*(?:GB|GiB)", re.IGNORECASE)
_SILENT = re.compile(r"nvidia|amd|instinct|geforce|tesla|gpu|oam|hbm\d?e?|\d+w")  # words that tell no two devices apart
_NEAR_SIZE = 0.1  # 80 GB are 79.2 GiB to PyTorch, 40 GB 39.4


def plain(name: str) -> str:
    """Letters and digits in lower case, without the maker: "NVIDIA A100-SXM4-80GB" gives "a100sxm480gb"."""
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", name.strip().lower()))


def words(name: str) -> frozenset[str]:
    """The words that tell devices apart, in any order: "H100 SXM5 80 GB HBM3" gives h100, sxm, 80gb."""
    text = re.sub(r"(\d)\s*gi?b\b", r"\1gb", name.strip().lower())
    text = re.sub(r"\bsxm\d\b", "sxm", text)
    found = re.findall(r"[a-z0-9]+", text)
    return frozenset(word for word in found if not _SILENT.fullmatch(word))


def spellings(name: str) -> Iterator[str]:
    """The name, then the name without a remark in brackets at its end."""
    yield name
    if _REMARK.search(name):
        yield _REMARK.sub("", name)


def find(name: str, table: Mapping[str, Any], field: str, what: str) -> str:
    """The row of that name or alias, else the one whose name has the same words in another order.

    A remark in brackets may follow ("V100 (memory size not stated)") unless it states a memory size that the row does
    not have. Raises InputError naming the nearest known name.
    """
    known = {alias: row for row in table for alias in (row, *table[row].get("aliases", ())) if row != "defaults"}
    rows = {plain(alias): row for alias, row in known.items()}
    for spelling in spellings(name):
        row = rows.get(plain(spelling)) or _same_words(spelling, known)
        if row is not None and _size_agrees(name.removeprefix(spelling), table[row]):
            return row
    raise _unknown(name, known, field, what)


def _same_words(name: str, known: Mapping[str, str]) -> str | None:
    wanted = words(name)
    return next((row for alias, row in known.items() if words(alias) == wanted), None)


def _size_agrees(remark: str, row: Mapping[str, Any]) -> bool:
    sizes = [float(size) for size in _SIZE_GB.findall(remark)]
    memory = row.get("memory_gib")
    return memory is None or all(abs(size / memory - 1) < _NEAR_SIZE for size in sizes)


def _unknown(name: str, known: Mapping[str, str], field: str, what: str) -> InputError:
    near = nearest(name, known)
    rows = ", ".join(dict.fromkeys(known.values()))
    legal = f"did you mean {known[near]!r}? known: {rows}" if near else f"known: {rows}"
    return bad_input(f"unknown {what}", field=field, value=repr(name), legal=legal)
