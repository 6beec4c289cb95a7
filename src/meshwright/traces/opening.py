"""Opening files that people give: whole or only their beginning, gunzipped, never without a bound."""

import zlib
from pathlib import Path
from urllib.parse import quote

from isal import isal_zlib

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import bytes_text

HEAD = 1 << 16
_LIMIT = 1 << 31


def beginning(path: Path) -> tuple[bytes, int]:
    """The first 64 KiB of a file (of its content, where it is gzip) and its size on disk.

    Raises InputError when there is no such file or it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
        size = path.stat().st_size
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error
    except ValueError as error:
        raise bad_input(f"no file can be named so ({error})", file=repr(str(path))) from error
    return (_gunzipped(head, HEAD) if head[:2] == b"\x1f\x8b" else head), size


def ending(path: Path) -> str:
    """The last 64 KiB of a text file, where a log says how it ended. Raises InputError as `beginning` does."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - HEAD))
            return file.read(HEAD).decode("utf-8", "replace")
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error


def whole(path: Path, limit: int = _LIMIT) -> bytes:
    """All of a file, gunzipped. Raises InputError when it cannot be read or is larger than `limit` bytes."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= limit else b""
        size = path.stat().st_size
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error
    if raw[:2] == b"\x1f\x8b":
        raw = _gunzipped(raw, limit + 1)
        size = len(raw)
    if size > limit:
        raise bad_input(f"larger than the {bytes_text(limit)} that are read of such a file", file=str(path))
    return raw


def text_of(path: Path, limit: int = _LIMIT) -> str:
    """All of a text file; bytes that are not UTF-8 become marks. Raises InputError as `whole` does."""
    return whole(path, limit).decode("utf-8", "replace").lstrip("\ufeff")


def shown_start(text: str, length: int = 60) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[:length] + "…"


def _gunzipped(raw: bytes, limit: int) -> bytes:
    """At most `limit` bytes of the first member of gzip data; what can be had where it is cut off or damaged."""
    stream = isal_zlib.decompressobj(wbits=31)
    try:
        return bytes(stream.decompress(raw, max_length=limit))
    except (isal_zlib.IsalError, zlib.error, EOFError):  # type: ignore[misc]
        return b""


def database_uri(path: Path) -> str:
    """The address under which sqlite3 opens a file for reading only."""
    return f"file:{quote(str(path.resolve()))}?mode=ro"
