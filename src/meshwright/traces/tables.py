"""CSV tables that people write: timing of phases, throughput by size, tokens by expert."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.traces.opening import shown_start, text_of

_MOST_COMPLAINTS = 10
_LIMIT = 1 << 30


@dataclass(frozen=True)
class CsvTable:
    """Columns of one table: `numbers` [rows] with NaN where a cell is empty, `texts`, and the line of each row."""

    path: Path
    numbers: dict[str, NDArray[np.float64]]
    texts: dict[str, tuple[str, ...]]
    lines: tuple[int, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.lines)

    def whole(self, column: str) -> NDArray[np.int64]:
        """A column of whole numbers. Raises InputError where one is missing or broken."""
        values = self.numbers[column]
        wrong = np.flatnonzero(~(np.isfinite(values) & (values == np.round(values)) & (np.abs(values) < 2**31)))
        if len(wrong):
            at = int(wrong[0])
            raise bad_input(f"line {self.lines[at]}: must be a whole number", field=column, file=str(self.path))
        return values.astype(np.int64)


def read_csv(
    path: Path,
    numbers: Sequence[str],
    optional: Sequence[str] = (),
    texts: Sequence[str] = (),
    filled: Sequence[str] = (),
) -> CsvTable:
    """Read a table. `numbers` are required and never negative; `filled` may not be empty; `texts` may be absent.

    Other columns are left out with a note, as is a last line that is cut off. Raises InputError when columns are
    missing, a cell is no number, or there are no rows.
    """
    rows = csv.reader(io.StringIO(text_of(path, _LIMIT).replace("\0", " "), newline=""))
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        body = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise bad_input(f"no CSV text ({error})", file=str(path)) from error
    missing = [name for name in numbers if name not in header]
    if missing:
        raise bad_input("columns are missing", value=", ".join(missing), file=str(path), legal=", ".join(numbers))
    if doubled := sorted({name for name in header if header.count(name) > 1 and name}):
        raise bad_input("columns appear twice", value=", ".join(doubled), file=str(path))
    notes = []
    if body and len(body[-1][1]) < len(header):
        notes.append(f"{path.name}: the last line is cut off and was left out")
        body.pop()
    if not body:
        raise bad_input("a table without rows", file=str(path))
    known = {*numbers, *optional, *texts}
    if extra := [name for name in header if name and name not in known]:
        notes.append(f"{path.name}: columns that are not used: {', '.join(extra)[:200]}")
    complaints: list[Complaint] = []
    found: dict[str, NDArray[np.float64]] = {}
    for name in [name for name in (*numbers, *optional) if name in header]:
        at = header.index(name)
        values = np.array([_number(row[at] if at < len(row) else "") for _, row in body])
        wrong = np.isinf(values) | (values < 0) | (np.isnan(values) & (name in filled))
        for row in np.flatnonzero(wrong)[:_MOST_COMPLAINTS].tolist():
            cell = body[row][1][at] if at < len(body[row][1]) else ""
            complaints.append(
                Complaint(
                    name, shown_start(cell, 40), f"line {body[row][0]}: must be a number, zero or more", "", str(path)
                )
            )
        found[name] = values
    if complaints:
        raise InputError(tuple(complaints[:_MOST_COMPLAINTS]))
    words = {
        name: tuple(row[at].strip() if (at := header.index(name)) < len(row) else "" for _, row in body)
        for name in texts
        if name in header
    }
    return CsvTable(path, found, words, tuple(line for line, _ in body), tuple(notes))


def _number(cell: str) -> float:
    """The number in a cell; NaN for an empty one, infinity for one that is no number."""
    text = cell.strip()
    if not text or text.lower() in ("nan", "none", "null", "-"):
        return math.nan
    try:
        value = float(text)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf
