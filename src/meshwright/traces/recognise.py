"""What an input of `diagnose` is, told by its content and not by its name."""

import glob
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.traces.opening import beginning, database_uri, ending, shown_start


class Input(StrEnum):
    """The kinds of input that are read."""

    KINETO = "torch.profiler trace"
    NSIGHT = "Nsight Systems export"
    SNAPSHOT = "CUDA memory snapshot"
    RECORDER = "flight recorder dump"
    PROTON = "Proton tree"
    OPERATIONS = "operation table"
    TIMING = "timing table"
    THROUGHPUT = "throughput table"
    ROUTING = "expert routing counts"
    ENVIRONMENT = "environment"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Recognised:
    """One input file and what it is."""

    path: Path
    kind: Input


NSYS_EXPORT = "nsys export --type sqlite --include-blobs true --output {stem}.sqlite {name}"
"""The command that turns a report into something that can be read."""

_NVPROF = (
    "a file of nvprof, which NVIDIA ended: nvprof and the Visual Profiler do not run on compute capability 8.0 and "
    "later (A100 on), and its tables are not read"
)
_INSTEAD = (
    "record again with Nsight Systems (nsys profile, then nsys export --type sqlite) or torch.profiler for timelines, "
    "Nsight Compute (ncu) for single kernels"
)
_EXPECTED = (
    "read are: torch.profiler JSON, Nsight Systems .sqlite, memory snapshots and flight recorder dumps (.pickle), "
    "Proton trees, operation tables (.parquet), CSV tables of timing, throughput or routing, and logs"
)
_TABLES = (
    (Input.ROUTING, {"layer", "rank", "expert", "tokens"}),
    (Input.ROUTING, {"layer", "expert", "tokens"}),
    (Input.TIMING, {"step", "rank", "phase", "ms"}),
)
_RATES = {"step_s", "tokens_per_s", "samples_per_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu"}
_JSON = re.compile(r"\{|\[\s*(?:[\[{\"\]]|-?[\d.]+\s*,|$)")  # a log may begin with [rank3] or [1]
_VARIABLE = re.compile(r"^(?:export )?[A-Z][A-Z0-9_]+=", re.MULTILINE)
_COLUMN = re.compile(r"[\w ()%/.#-]{1,40}")
_LOG_WORDS = re.compile(
    r"watchdog|ProcessGroup|NCCL|gloo|collective|overflow|loss.?scale|rendezvous|timed? ?out|torch\.distributed|c10d",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Recognition:
    """The files that can be read, in order and each once, and notes on what was passed over in folders."""

    files: tuple[Recognised, ...]
    notes: tuple[str, ...]

    def of(self, kind: Input) -> tuple[Path, ...]:
        """The files of one kind."""
        return tuple(one.path for one in self.files if one.kind is kind)


def recognise(paths: Sequence[Path | str]) -> Recognition:
    """What each path is: files, folders (the files right in them) and globs.

    In a folder, files of no known kind are passed over with a note. Raises InputError listing every named file that
    nothing can be said of, and folders with nothing to read.
    """
    complaints: list[Complaint] = []
    notes: list[str] = []
    found: dict[Path, Recognised] = {}
    for path in map(Path, paths):
        folder = path.is_dir()
        files = sorted(child for child in path.iterdir() if child.is_file()) if folder else _matches(path)
        wrong: list[Complaint] = []
        known = 0
        for file in files:
            try:
                found.setdefault(file, Recognised(file, kind_of(file)))
                known += 1
            except InputError as error:
                wrong += error.complaints
        if not folder:
            complaints += wrong
        elif not known:
            rule = "no trace, table, snapshot or log in this folder"
            complaints += [Complaint("", "", rule, _EXPECTED, str(path)), *wrong[:3]]
        else:
            notes += [f"passed over: {one.file}: {one.rule}" for one in wrong[:8]]
            notes += [f"passed over: {len(wrong) - 8} more files of {path}"] if len(wrong) > 8 else []
    if complaints:
        raise InputError(tuple(complaints))
    if not found:
        raise bad_input("no input given")
    return Recognition(tuple(found.values()), tuple(notes))


def _matches(path: Path) -> list[Path]:
    """The path itself, or what it matches where it holds wildcards and no such file exists."""
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    matched = sorted(Path(name) for name in glob.glob(str(path)))  # noqa: PTH207  an absolute pattern is allowed
    if not matched:
        raise bad_input("nothing matches", file=str(path))
    return [file for file in matched if file.is_file()]


def kind_of(path: Path) -> Input:
    """The kind of one file. Raises InputError when it cannot be read or is of no known kind, saying what it is."""
    head, size = beginning(path)
    name = str(path)
    if not size:
        raise bad_input("the file is empty (0 bytes)", file=name)
    if not head:
        raise bad_input("compressed data that cannot be read", file=name)
    if head.startswith(b"SQLite format 3\x00"):
        return _database(path)
    if head.startswith(b"PAR1"):
        return Input.OPERATIONS
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return Input.RECORDER if _names(head, b"nccl_version", b"pg_config") else Input.SNAPSHOT
    if path.suffix == ".nsys-rep" or head.startswith(b"NVNS") or path.suffix == ".qdrep":
        raise bad_input(
            "an Nsight Systems report, which only nsys itself can read", file=name,
            legal="run: " + NSYS_EXPORT.format(stem=path.stem, name=path.name),
        )  # fmt: skip
    if path.suffix == ".nvvp" or head.startswith(b"NVPROF") or b"==NVPROF==" in head or b"======== Profil" in head:
        raise bad_input(_NVPROF, file=name, legal=_INSTEAD)
    if head[257:262] == b"ustar" or head[:4] == b"PK\x03\x04":
        raise bad_input("an archive: unpack it and give the folder", file=name)
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if not text.strip("\x00 \t\r\n"):
        raise bad_input("nothing but blanks or zero bytes in it", file=name, legal=_EXPECTED)
    if _JSON.match(text):
        return _json(text, name)
    return _plain(text, path)


def _names(head: bytes, *keys: bytes) -> bool:
    return any(key in head for key in keys)


def _database(path: Path) -> Input:
    try:
        with closing(sqlite3.connect(database_uri(path), uri=True, timeout=1)) as found:
            tables = {row[0] for row in found.execute("select name from sqlite_master where type='table' limit 5000")}
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise bad_input(f"a SQLite file that cannot be read ({error})", file=str(path)) from error
    if "META_DATA_EXPORT" in tables or ("StringIds" in tables and any(t.startswith("CUPTI_") for t in tables)):
        return Input.NSIGHT
    if "StringTable" in tables and any(table.startswith("CUPTI_") for table in tables):
        raise bad_input(_NVPROF, file=str(path), legal=_INSTEAD)
    raise bad_input("a SQLite file of something else: no table of Nsight Systems in it", file=str(path))


def _json(text: str, name: str) -> Input:
    """Which JSON it is, told by the keys near its beginning."""
    lone = re.search(r'"(traceEvents|schemaVersion|deviceProperties|displayTimeUnit|distributedInfo)"', text)
    if lone or (text[0] == "[" and re.search(r'"ph"\s*:', text)):
        return Input.KINETO
    if re.search(r'"frame"\s*:|"children"\s*:', text) and re.search(r'"metrics"\s*:', text):
        return Input.PROTON
    if re.search(r'"(nccl_version|pg_config|pg_status)"\s*:', text) or (
        re.search(r'"entries"\s*:', text) and re.search(r'"(collective_seq_id|profiling_name|pg_id)"', text)
    ):
        return Input.RECORDER
    if re.search(r'"variables"\s*:\s*\{', text) and '"meshwright"' in text:
        return Input.ENVIRONMENT
    if re.match(r'\{\s*"(ts|ph|pid|name)"', text) and '"ph"' in text:
        return Input.KINETO
    if len(text) < 1 << 16 and not re.search(r"[\]}]\s*$", text):
        raise bad_input("JSON that is cut off before anything in it tells what it is", file=name, legal=_EXPECTED)
    raise bad_input("JSON of something else", file=name, value=shown_start(text), legal=_EXPECTED)


def _plain(text: str, path: Path) -> Input:
    name = str(path)
    header = {cell.strip().strip('"').lower() for cell in text.splitlines()[0].replace(";", ",").split(",")}
    for kind, needed in _TABLES:
        if needed <= header:
            return kind
    if header & {"devices", "gpus"} and header & _RATES:
        return Input.THROUGHPUT
    if len(_VARIABLE.findall(text)) > 0.5 * text.count("\n"):
        return Input.ENVIRONMENT
    printable = sum(char.isprintable() or char in "\r\n\t\x1b" for char in text)
    if printable < 0.9 * len(text):
        raise bad_input("bytes of no known kind", file=name, legal=_EXPECTED)
    rows = len(header) > 2 and all(_COLUMN.fullmatch(cell) for cell in header)
    if not rows and (_LOG_WORDS.search(text) or _LOG_WORDS.search(ending(path))):
        return Input.LOG
    if len(header) > 1:
        columns = ", ".join(sorted(header))[:120]
        legal = (
            "step,rank,phase,ms | devices,step_s (or tokens_per_s, samples_per_s) | step,layer,rank,expert,tokens; "
            "a log must hold lines of NCCL, gloo, torch.distributed or a loss scale"
        )
        raise bad_input("neither a table nor a log that is known", file=name, value=columns, legal=legal)
    raise bad_input("not a trace, and text of nothing that is known", file=name, legal=_EXPECTED)
