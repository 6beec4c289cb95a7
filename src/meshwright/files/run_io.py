"""Read and write the files of a run folder. Reading is strict and raises InputError naming file and field."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.files.findings import Diagnosis
from meshwright.files.run import MeasuredUnits, RankMemory, RunFolder, RunResult, StepMetrics
from meshwright.files.strict_json import dump, from_json, load, load_as, to_json, write_whole


def new_run(root: Path, name: str) -> RunFolder:
    """Create `root/name`, or `name-2`, `name-3`, ... when it exists: a run is never overwritten.

    Raises InputError when the folder cannot be created, or the name is not a plain folder name.
    """
    if not name or Path(name).name != name or name in (".", ".."):
        raise bad_input("must be a plain folder name", field="run name", value=repr(name))
    try:
        root.mkdir(parents=True, exist_ok=True)
        for attempt in count(1):
            folder = root / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return RunFolder(folder)
    except OSError as error:
        raise bad_input(f"cannot create the run folder ({error.strerror})", file=str(root / name)) from error
    raise AssertionError("count() never ends")


def append_metrics(path: Path, line: StepMetrics) -> None:
    """Append one step to `metrics.jsonl`, in a single write so that a reader never sees half of two lines."""
    data = (json.dumps(to_json(line), allow_nan=False) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def write_metrics(steps: Sequence[StepMetrics], path: Path) -> None:
    """Write a whole `metrics.jsonl` in place of what is there."""
    write_whole(path, "".join(json.dumps(to_json(step), allow_nan=False) + "\n" for step in steps))


def read_metrics(path: Path) -> tuple[StepMetrics, ...]:
    """All steps of `metrics.jsonl` in the order written. A last line without its end (a crash) is left out.

    Raises InputError when the file is missing, or any other line cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error
    return parse_metrics(text, str(path))


def parse_metrics(text: bytes, file: str = "metrics.jsonl", first_line: int = 1) -> tuple[StepMetrics, ...]:
    """The complete lines of `text`; see `read_metrics`."""
    steps: list[StepMetrics] = []
    complaints: list[Complaint] = []
    for number, line in enumerate(text.split(b"\n")[:-1], first_line):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            complaints.append(Complaint(f"line {number}", "", "is not JSON", "", file))
            continue
        try:
            steps.append(from_json(data, StepMetrics, file=f"{file}: line {number}"))
        except InputError as error:
            complaints.extend(error.complaints)
    if complaints:
        raise InputError(tuple(complaints))
    return tuple(steps)


def write_units(units: MeasuredUnits, path: Path) -> None:
    """Write `units.json`."""
    dump(units, path)


def read_units(path: Path) -> MeasuredUnits:
    """Read `units.json`. Raises InputError, also for times that are negative or no numbers."""
    units = load_as(path, MeasuredUnits)
    wrong = [
        Complaint(f"units.{name}.{part.name}", str(value), "must be a time of 0 s or more", file=str(path))
        for name, times in units.units.items()
        for part in fields(times)
        if isinstance(value := getattr(times, part.name), float) and not 0 <= value < math.inf
    ]
    if wrong:
        raise InputError(tuple(wrong))
    return units


@dataclass(frozen=True, slots=True)
class _Ranks:
    ranks: tuple[RankMemory, ...]


def write_memory(ranks: Sequence[RankMemory], path: Path) -> None:
    """Write `memory.json`: one entry a rank."""
    dump(_Ranks(tuple(ranks)), path)


def read_memory(path: Path) -> tuple[RankMemory, ...]:
    """Read `memory.json`."""
    return load_as(path, _Ranks).ranks


def write_result(result: RunResult, path: Path) -> None:
    """Write `result.json`."""
    dump(result, path)


def read_result(path: Path) -> RunResult:
    """Read `result.json`."""
    return load_as(path, RunResult)


def write_environment(environment: Mapping[str, object], path: Path) -> None:
    """Write `environment.json`: free-form facts about machine and versions."""
    dump(dict(environment), path)


def read_environment(path: Path) -> dict[str, Any]:
    """Read `environment.json`."""
    return load(path)


def write_findings(diagnosis: Diagnosis, path: Path) -> None:
    """Write `findings.json`."""
    dump(diagnosis, path)


def read_findings(path: Path) -> Diagnosis:
    """Read `findings.json`. Lists inside evidence and changes come back as tuples, as the values hold them."""
    return load_as(path, Diagnosis)
