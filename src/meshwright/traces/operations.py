"""Operation tables: when each operation of a pipelined, data-parallel job began and how long it took."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input

_COLUMNS = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id")
_MOST_ROWS = 20_000_000

Operation = tuple[int, int, str, int]
"""(data-parallel rank, stage, type, number within the step)."""


@dataclass(frozen=True)
class Operations:
    """`start` and `duration` of every operation, [steps] seconds each, in the steps that have all of them."""

    steps: tuple[int, ...]
    start: dict[Operation, NDArray[np.float64]]
    duration: dict[Operation, NDArray[np.float64]]
    notes: tuple[str, ...]

    @property
    def step_s(self) -> NDArray[np.float64]:
        """[steps] seconds from the beginning of the step (0 where times are counted from it) to its last end."""
        end = np.max([start + self.duration[op] for op, start in self.start.items()], axis=0)
        first = np.min(list(self.start.values()), axis=0)
        from_zero = bool((np.abs(first) < 0.1 * (end - first)).all())
        return np.asarray(end if from_zero else end - first, np.float64)


def read_operations(path: Path) -> Operations:
    """Read a table (Parquet) with the columns dp_rank, stage, step, optype, start_ts, duration, seq_id; seconds.

    Steps that lack operations which most steps have are left out with a note. Raises InputError when pyarrow is not
    installed, the file is damaged, columns are missing or hold no numbers, or no step is complete.
    """
    columns = _columns(path)
    numbers = {name: _numbers(columns[name], name, path) for name in _COLUMNS if name != "optype"}
    notes: list[str] = []
    if "mc" in columns and (_numbers(columns["mc"], "mc", path) > 0).any():
        raise bad_input("several model chunks a rank (interleaved): such tables are not read", file=str(path))
    good = np.isfinite(numbers["start_ts"]) & (numbers["duration"] >= 0) & np.isfinite(numbers["duration"])
    if not good.all():
        notes.append(f"{path.name}: {int((~good).sum())} operations without a time, or of negative length, left out")
    steps, which = np.unique(numbers["step"].astype(np.int64), return_inverse=True)
    start: dict[Operation, NDArray[np.float64]] = {}
    duration: dict[Operation, NDArray[np.float64]] = {}
    doubled = 0
    rows = np.flatnonzero(good).tolist()
    whole = {name: numbers[name].astype(np.int64) for name in ("dp_rank", "stage", "seq_id")}
    if len(rows) * len(steps) > 50 * _MOST_ROWS:
        raise bad_input("too many operations of too many steps to lay out", file=str(path))
    for row in rows:
        name = str(columns["optype"][row])[:60]
        key = int(whole["dp_rank"][row]), int(whole["stage"][row]), name, int(whole["seq_id"][row])
        at = which[row]
        if key not in start:
            start[key], duration[key] = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
        doubled += not np.isnan(start[key][at])
        start[key][at], duration[key][at] = numbers["start_ts"][row], numbers["duration"][row]
    if doubled:
        notes.append(f"{path.name}: {doubled} operations come twice (tensor ranks?): the last of each was taken")
    usual = {key: values for key, values in start.items() if np.isfinite(values).mean() > 0.5}
    complete = np.all([np.isfinite(values) for values in usual.values()], axis=0) if usual else np.zeros(0, bool)
    if not complete.any():
        raise bad_input("no step has all of its operations", file=str(path))
    if not complete.all():
        notes.append(f"{path.name}: {int((~complete).sum())} of {len(steps)} steps are not complete and were left out")
    return Operations(
        tuple(steps[complete].tolist()), {key: values[complete] for key, values in usual.items()},
        {key: duration[key][complete] for key in usual}, tuple(notes),
    )  # fmt: skip


def _columns(path: Path) -> dict[str, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise bad_input(
            "reading Parquet needs pyarrow, which is not installed", file=str(path),
            legal="pip install 'meshwright[tables]'",
        ) from None  # fmt: skip
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            legal = ", ".join(_COLUMNS)
            raise bad_input("columns are missing", value=", ".join(missing), file=str(path), legal=legal)
        if not 0 < file.metadata.num_rows <= _MOST_ROWS:
            raise bad_input(f"{file.metadata.num_rows} rows: 1 to {_MOST_ROWS:,} are read", file=str(path))
        wanted = [name for name in (*_COLUMNS, "mc") if name in names]
        table = file.read(columns=wanted, use_threads=False)
        found: dict[str, Any] = {
            name: table.column(name).to_pylist() if name == "optype" else table.column(name).to_numpy()
            for name in wanted
        }
    except (OSError, pyarrow.ArrowException, ValueError, MemoryError) as error:
        told = " ".join(str(error).split())[:120]
        raise bad_input(f"a Parquet file that cannot be read ({told})", file=str(path)) from None
    return found


def _numbers(values: Any, name: str, path: Path) -> NDArray[np.float64]:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise bad_input("must hold numbers", field=name, file=str(path)) from None
    if name not in ("start_ts", "duration", "mc") and not (np.isfinite(found) & (np.abs(found) < 2**53)).all():
        raise bad_input("must hold whole numbers, none missing", field=name, file=str(path))
    return found
