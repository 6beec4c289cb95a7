"""One trace file as events: gunzipped, repaired where it is damaged, decoded field by field."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from isal import isal_zlib

from meshwright.basics.errors import bad_input

_CHUNK = 1 << 20
_CONTROL = {byte: 0x20 for byte in range(0x20) if byte not in (0x09, 0x0A, 0x0D)}
_BLANKED = bytes(_CONTROL.get(byte, byte) for byte in range(256))
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_TRIES = 64
_EXACT_FLOATS = 2.0**43  # µs below which a float64 still holds nanoseconds


class Args(msgspec.Struct, gc=False):
    """The arguments that are used; their types differ between writers."""

    stream: Any = None
    device: Any = None
    correlation: Any = None
    bytes: Any = None
    dtype: Any = None
    seq: Any = msgspec.field(default=None, name="Seq")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are microseconds."""

    ph: str = ""
    cat: str | None = None
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


class _ExactEvent(Event, gc=False):
    ts: int | Decimal = 0  # type: ignore[assignment]
    dur: int | Decimal = 0  # type: ignore[assignment]


class Distributed(msgspec.Struct, gc=False):
    """Who wrote the file."""

    backend: str | None = None
    rank: int | None = None
    world_size: int | None = None
    pg_config: Any = None


class Document(msgspec.Struct):
    """One trace file."""

    events: list[Event] = msgspec.field(name="traceEvents")
    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    devices: list[Any] = msgspec.field(default_factory=list, name="deviceProperties")


class _ExactDocument(Document):
    events: list[_ExactEvent] = msgspec.field(name="traceEvents")  # type: ignore[assignment]


def read_document(path: Path) -> tuple[Document, list[str]]:
    """The trace in `path` (.json or .json.gz) and what had to be repaired to read it.

    Raises InputError when there is no such file or nothing in it is a trace.
    """
    notes: list[str] = []
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error
    if raw[:2] == b"\x1f\x8b":
        raw = _gunzip(raw, path, notes)
    if raw.lstrip()[:1] == b"[":  # the bare-list form of the format
        raw = b'{"traceEvents":' + raw.rstrip() + b"}"
    document = _decode(raw, path, notes)
    if document.events and not any(event.ph for event in document.events):
        rule = "JSON of something else: none of its objects is an event of a torch.profiler trace"
        raise bad_input(rule, file=str(path), legal="this version reads torch.profiler traces and its own runs")
    return document, notes


def _gunzip(raw: bytes, path: Path, notes: list[str]) -> bytes:
    """All members of a gzip file; what can be read of one that is cut off or damaged."""
    out: list[bytes] = []
    rest = raw
    while rest[:2] == b"\x1f\x8b":
        stream = isal_zlib.decompressobj(wbits=31)
        try:
            for at in range(0, len(rest), _CHUNK):
                out.append(stream.decompress(rest[at : at + _CHUNK]))
                if stream.eof:
                    break
        except isal_zlib.IsalError:  # type: ignore[misc]
            notes.append(f"{path.name}: damaged gzip data, the readable part was used")
            break
        if not stream.eof:
            notes.append(f"{path.name}: the compressed file is cut off, the readable part was used")
            break
        rest = stream.unused_data + rest[at + _CHUNK :]
    return b"".join(out)


def _decode(raw: bytes, path: Path, notes: list[str]) -> Document:
    try:
        return _exact(raw)
    except msgspec.MsgspecError as error:
        first = error
    blanked = raw.translate(_BLANKED)
    if blanked != raw:
        offset = next(at for at, (a, b) in enumerate(zip(raw, blanked, strict=True)) if a != b)
        notes.append(f"{path.name}: control character at byte {offset} replaced by a blank")
        raw = blanked
    text = raw.decode("utf-8", "replace").encode()
    if text != raw:
        notes.append(f"{path.name}: bytes that are not UTF-8 replaced")
        raw = text
    try:
        return _exact(raw)
    except msgspec.MsgspecError:
        pass
    cuts = [match.start() + 1 for match in _BETWEEN.finditer(raw, max(0, len(raw) - 64 * _CHUNK))]
    for cut in reversed(cuts[-_TRIES:]):
        try:
            document = _exact(raw[:cut] + b"]}")
        except msgspec.MsgspecError:
            continue
        notes.append(
            f"{path.name}: the file is cut off; {len(document.events)} whole events were read, "
            f"{len(raw) - cut} bytes after them were not"
        )
        return document
    raise bad_input(f"not a trace of torch.profiler ({first})", file=str(path)) from first


def _exact(raw: bytes) -> Document:
    """Decode; once more with decimal fractions when floats would lose nanoseconds (absolute times in µs)."""
    document = msgspec.json.decode(raw, type=Document)
    if any(isinstance(event.ts, float) and event.ts > _EXACT_FLOATS for event in document.events):
        return msgspec.json.decode(raw, type=_ExactDocument)
    return document
