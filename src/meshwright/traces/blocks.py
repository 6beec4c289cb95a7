"""The text of a file in blocks of a few MiB, gunzipped on the way, so that no file is ever held whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isal import isal_zlib

from meshwright.basics.errors import bad_input

BLOCK = 3 << 20
_PACKED = 256 << 10
_GZIP = b"\x1f\x8b"


def text_blocks(path: Path, notes: list[str], block: int = BLOCK) -> Iterator[bytes]:
    """The content of `path` in pieces of at most `block` bytes; gzip (any number of members) is unpacked.

    What can be read of a damaged or cut-off gzip file is given, and a note says so. Raises InputError when the file
    cannot be opened.
    """
    try:
        with path.open("rb") as file:
            head = file.read(2)
            file.seek(0)
            if head == _GZIP:
                yield from _unpacked(file, path.name, notes, block)
                return
            while piece := file.read(block):
                yield piece
    except OSError as error:
        raise bad_input(f"cannot be read ({error.strerror})", file=str(path)) from error


def _unpacked(file: Any, name: str, notes: list[str], block: int) -> Iterator[bytes]:
    stream = isal_zlib.decompressobj(wbits=31)
    packed = file.read(_PACKED)
    parts: list[bytes] = []
    held = 0
    while packed:
        try:
            piece = stream.decompress(packed, max_length=block - held)
        except isal_zlib.IsalError:  # type: ignore[misc]
            notes.append(f"{name}: damaged gzip data, the readable part was used")
            break
        parts.append(piece)
        held += len(piece)
        packed = stream.unconsumed_tail
        if held >= block:
            yield b"".join(parts)
            parts, held = [], 0
        if stream.eof:
            packed = stream.unused_data + file.read(_PACKED)
            if not packed.startswith(_GZIP):
                break
            stream = isal_zlib.decompressobj(wbits=31)
        elif not packed:
            packed = file.read(_PACKED)
            if not packed and not stream.eof:
                packed = b""
                notes.append(f"{name}: the compressed file is cut off, the readable part was used")
    if parts:
        yield b"".join(parts)
