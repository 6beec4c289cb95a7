"""Tables of measured training configurations: one a row, in CSV with the columns of `data/measurements`.

Any field may be empty and any column may be left out; an unknown column is an error that names the nearest known one.
What a field says that cannot be (a negative time, a count that is no number) is kept with its row as a problem, so
that whoever reads the table can name the row and go on with the next. Rows are read one at a time.
"""

import csv
import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.names import nearest

_MOST = 1e15  # no count, rate or size of a training run is larger
_FIELD_LIMIT = 1 << 20  # characters in one field: notes are long, but not a whole file behind a stray quote


@dataclass(frozen=True, slots=True)
class Row:
    """One measured configuration; None (text: empty) is what the table does not say.

    Counts are whole numbers, `step_time_s` seconds, `tokens_per_s_per_gpu` and `tflops_per_gpu` per device, `*_percent`
    of the dense peak, `peak_memory_gib` the largest of any rank. `inferred` and `derived` name columns that somebody
    filled from public configurations, or computed, instead of reading them in the source. `trust`: A (printed,
    complete, agrees with itself), B (something inferred or missing), C (noisy). Rows of one `config_group` are the same
    configuration measured again. `problems` says what in the row cannot be.
    """

    line: int  # of the file, counted from 1; the header is line 1
    id: str = ""
    source: str = ""
    date: str = ""
    framework: str = ""
    model_name: str = ""
    params_b: float | None = None
    layers: int | None = None
    hidden: int | None = None
    ffn_hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    experts: int | None = None
    active_experts: int | None = None
    seq_len: int | None = None
    tied_embeddings: bool | None = None
    gated_mlp: bool | None = None
    attention_impl: str = ""
    gpu: str = ""
    gpus: int | None = None
    gpus_per_node: int | None = None
    intra_node_link: str = ""
    inter_node_link: str = ""
    dp: int | None = None
    tp: int | None = None
    sp: bool | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    zero_stage: int | None = None
    schedule: str = ""
    micro_batch: int | None = None
    global_batch: int | None = None
    recompute: str = ""
    precision: str = ""
    offload: str = ""
    overlap_notes: str = ""
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    tflops_per_gpu: float | None = None
    flops_convention: str = ""
    mfu_percent: float | None = None
    hfu_percent: float | None = None
    peak_memory_gib: float | None = None
    notes: str = ""
    inferred: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    task: str = ""
    throughput_stated: str = ""
    peak_memory_stated: str = ""
    complete: bool | None = None
    consistency: str = ""
    trust: str = ""
    config_group: str = ""
    problems: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """Its id, or where it stands."""
        return self.id or f"line {self.line}"

    @property
    def step_seconds(self) -> float | None:
        """Measured seconds a step: as printed, or from tokens per second; None when neither is known."""
        if self.step_time_s is not None:
            return self.step_time_s
        rate, gpus, batch, length = self.tokens_per_s_per_gpu, self.gpus, self.global_batch, self.seq_len
        if rate is None or gpus is None or batch is None or length is None:
            return None
        return batch * length / (rate * gpus)

    @property
    def stated_complete(self) -> bool:
        """Are device, degrees, batch, sequence and a throughput all given?"""
        needed = (self.gpus, self.dp, self.tp, self.pp, self.micro_batch, self.global_batch, self.seq_len)
        rates = (self.step_time_s, self.tokens_per_s_per_gpu, self.tflops_per_gpu, self.mfu_percent, self.hfu_percent)
        return bool(self.gpu) and None not in needed and any(rate is not None for rate in rates)


COLUMNS: tuple[str, ...] = tuple(spec.name for spec in fields(Row) if spec.name not in ("line", "problems"))
"""The columns of a table, in their usual order."""

_KINDS: dict[str, Any] = {spec.name: spec.type for spec in fields(Row) if spec.name in COLUMNS}


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a table, read as they are asked for. Raises InputError at once for a file that cannot be read, has no
    header, or has unknown or doubled columns (all named), and while reading for a file that is no CSV text."""
    stream, header = _opened(path)
    complaints = [*_unknown(header, path), *_doubled(header, path)]
    if complaints:
        raise InputError(tuple(complaints))
    return _rows(stream, path, header)


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table with columns of its owner's beside ours: `unknown` names those (and the nearest known name, or None)."""

    unknown: tuple[tuple[str, str | None], ...]
    rows: Iterator[Row]


def read_table(path: Path) -> RowTable:
    """As `read_rows`, but unknown columns are left out and named. Raises InputError when no column is known."""
    stream, header = _opened(path)
    known = [name for name in header if name in COLUMNS]
    if not known:
        apart = next((mark for mark in (";", "\t", "|") if mark in header[0]), "")
        legal = f"columns are separated by commas, not by {apart!r}" if apart else "columns: " + ", ".join(COLUMNS)
        raise bad_input("has no column that is known", file=str(path), legal=legal)
    complaints = _doubled(known, path)
    if complaints:
        raise InputError(tuple(complaints))
    unknown = tuple((name, _meant(name, known)) for name in header if name and name not in COLUMNS)
    return RowTable(unknown, _rows(stream, path, header))


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The column that a name may be a slip of: near in spelling, and not there under its own name."""
    return next(iter(difflib.get_close_matches(name.lower(), [c for c in COLUMNS if c not in known], 1, 0.8)), None)


def _opened(path: Path) -> tuple[TextIO, list[str]]:
    """The open file, behind its header, and the names in the header."""
    try:
        stream = path.open(encoding="utf-8-sig", newline="")
        header = [name.strip() for name in next(_records(stream, path), (1, ()))[1]]
    except OSError as error:
        raise bad_input(f"cannot be read: {error.strerror}", file=str(path)) from None
    if not any(header):
        raise bad_input(
            "is empty: a table begins with a line of column names", file=str(path), legal=", ".join(COLUMNS)
        )
    return stream, header


def _rows(stream: TextIO, path: Path, header: Sequence[str]) -> Iterator[Row]:
    with stream:
        for line, record in _records(stream, path, after=1):
            if any(text.strip() for text in record):
                yield row_of(header, record, line)


def _records(stream: TextIO, path: Path, after: int = 0) -> Iterator[tuple[int, Sequence[str]]]:
    csv.field_size_limit(_FIELD_LIMIT)
    reader = csv.reader(stream, strict=True)
    while True:
        try:
            yield after + reader.line_num + 1, next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as error:
            where = f"{path}, line {after + reader.line_num + 1}"
            raise bad_input(f"is no CSV text in UTF-8: {error}", file=where) from None


def _unknown(names: Sequence[str], path: Path) -> list[Complaint]:
    found = []
    for place, name in enumerate(names, 1):
        if name not in COLUMNS:
            near = nearest(name, COLUMNS)
            legal = f"did you mean {near!r}?" if near else "columns: " + ", ".join(COLUMNS)
            found.append(Complaint(f"column {place}", repr(name), "unknown column", legal, str(path)))
    return found


def _doubled(names: Sequence[str], path: Path) -> list[Complaint]:
    return [
        Complaint(f"column {place}", repr(name), "the column is there twice", "", str(path))
        for place, name in enumerate(names, 1)
        if name in COLUMNS and name in names[: place - 1]
    ]


def row_of(header: Sequence[str], record: Sequence[str], line: int = 0) -> Row:
    """One record as a row. Fields that cannot be read are None and named in `problems`, those of unknown columns are
    left out; never raises."""
    values: dict[str, Any] = {}
    problems = []
    if len(record) != len(header):
        problems.append(f"{len(record)} fields where the header has {len(header)} columns")
    for column, text in zip(header, record, strict=False):
        if column not in _KINDS:
            continue
        value, problem = _value(_KINDS[column], text.strip())
        if problem:
            problems.append(f"{column} = {text.strip()[:40]!r} {problem}")
        elif value is not None:
            values[column] = value
    return Row(line=line, problems=tuple(problems), **values)


def _value(kind: Any, text: str) -> tuple[Any, str]:
    """The typed value, or None and what is wrong with it."""
    if not text:
        return None, ""
    if kind is str:
        return text, ""
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(";") if part.strip()), ""
    if kind == bool | None:
        known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return known.get(text.lower()), "" if text.lower() in known else "is neither true nor false"
    return _number(text, whole=kind == int | None)


def _number(text: str, whole: bool) -> tuple[float | None, str]:
    try:
        value = float(text)
    except ValueError:
        return None, "is no number"
    if not math.isfinite(value) or abs(value) > _MOST:
        return None, "is no finite number of a sensible size"
    if value < 0:
        return None, "is negative"
    if whole and value != int(value):
        return None, "is no whole number"
    return (int(value) if whole else value), ""
