"""The events of a trace, block by block: cut where an event ends, decoded field by field, repaired where damaged.

A block is proved to be cut rightly by its decoding: an event boundary that lies in a string or a nested object leaves
quotes or brackets unbalanced, and the one before it is tried.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import bytes_text
from meshwright.traces.blocks import BLOCK, text_blocks
from meshwright.traces.document import Event, ExactEvent, Header

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_CLOSE = re.compile(rb"\]\s*(?=[,}]|\Z)")
_CONTROL = bytes(0x20 if byte < 0x20 and byte not in (9, 10, 13) else byte for byte in range(256))
_TAIL = 1 << 16
_HEAD_LIMIT = 64 << 20
_TRIES = 64
_JOINS = 8
_PROOFS = 6
_BEGINS = 4
_SURE = 1 << 18  # a buffer this long in which no block decodes is damaged
_BAD = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class EventStream:
    """One file, read once. `header` is complete, and `seen`, `skipped` and `notes` final, after the last block."""

    def __init__(self, path: Path, block: int = BLOCK) -> None:
        self.path = path
        self._block = block
        self.header = Header()
        self.notes: list[str] = []
        self.seen = 0
        self.skipped = 0
        self._offset = 0  # of the buffer's first byte in the (unpacked) file
        self._list = False
        self._exact = False
        self._blocks_of: Mapping[bool, msgspec.json.Decoder[list[Event]]] = {
            False: msgspec.json.Decoder(list[Event]), True: msgspec.json.Decoder(list[ExactEvent]),
        }  # fmt: skip
        self._event_of: Mapping[bool, msgspec.json.Decoder[Event]] = {
            False: msgspec.json.Decoder(Event), True: msgspec.json.Decoder(ExactEvent),
        }  # fmt: skip
        self._again = b""  # the text of the block that was decoded last
        self._parsed: list[Event] = []

    def blocks(self) -> Iterator[list[Event]]:
        """Lists of events in the order of the file. Raises InputError when the file holds no trace."""
        pieces = text_blocks(self.path, self.notes, self._block)
        buffer = self._head(pieces)
        for piece in pieces:
            buffer += piece
            cut, events, ended = self._block_of(buffer)
            if cut < 0:
                continue
            yield events
            if ended is not None:
                self._suffix(ended + buffer[cut:] + b"".join(pieces))
                return
            buffer = self._advance(buffer, cut)
        yield from self._last(buffer)

    def exactly(self) -> list[Event]:
        """The last block once more with all decimals; so are all later ones."""
        self._exact = True
        return self._parse(self._again)

    def _head(self, pieces: Iterator[bytes]) -> bytes:
        buffer = b""
        for piece in pieces:
            buffer += piece
            start = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start[:1] == b"[":
                self._list = True
                self._offset = len(buffer) - len(start) + 1
                return start[1:]
            if start and start[:1] != b"{":
                break
            for match in _EVENTS.finditer(buffer):
                try:
                    self.header = msgspec.json.decode(buffer[: match.end()].translate(_CONTROL) + b"]}", type=Header)
                except _BAD:
                    continue
                self._offset = match.end()
                return buffer[match.end() :]
            if len(buffer) > _HEAD_LIMIT:
                break
        raise bad_input("not a trace of torch.profiler: there is no list of traceEvents in it", file=str(self.path))

    def _advance(self, buffer: bytes, cut: int) -> bytes:
        """What follows the comma after an event that ends at `cut`."""
        comma = buffer.index(b",", cut) + 1
        self._offset += comma
        return buffer[comma:]

    def _block_of(self, buffer: bytes) -> tuple[int, list[Event], bytes | None]:
        """Where the buffer's last whole event ends, the events up to there, and what follows the list if it ends.

        The end is -1 while more must be read to tell. Events of a damaged block are salvaged.
        """
        found: int | None = None
        for cut in islice(self._cuts(buffer), _PROOFS):
            found = cut if found is None else found
            if self._parses(buffer[:cut]):
                return cut, *self._decode(buffer[:cut])
        if len(buffer) < max(2 * self._block, _SURE):
            return -1, [], None
        if found is None:
            if len(buffer) < _HEAD_LIMIT:
                return -1, [], None
            rule = f"no event ends in {bytes_text(_HEAD_LIMIT)} from byte {self._offset} on"
            raise bad_input(rule, file=str(self.path))
        return found, *self._decode(buffer[:found])

    def _cuts(self, buffer: bytes) -> Iterator[int]:
        """Ends of events that another event follows, the last ones first, as far as the events alone can tell."""
        for low in (max(0, len(buffer) - _TAIL), 0):
            cuts = [match.start() + 1 for match in _BETWEEN.finditer(buffer, low)]
            for cut in reversed(cuts[-_TRIES:]):
                if self._ends_event(buffer, cut):
                    yield cut
            if cuts or not low:
                return

    def _ends_event(self, buffer: bytes, cut: int) -> bool:
        """Does an event that decodes by itself end at `cut`? It begins after one of the boundaries before it."""
        begins = [match.end() - 1 for match in _BETWEEN.finditer(buffer, max(0, cut - _TAIL), cut)][-_BEGINS:]
        whole = [0] if cut <= _TAIL else []
        return any(self._alone(self._clean(buffer[begin:cut])) for begin in (*reversed(begins), *whole))

    def _parse(self, text: bytes) -> list[Event]:
        return self._blocks_of[self._exact].decode(b"[" + text + b"]")

    def _decode(self, text: bytes) -> tuple[list[Event], bytes | None]:
        """Events of a block; and what follows the list of events, where the block holds its end."""
        ended = None
        if text != self._again:
            if not self._parses(text):
                text = self._repaired(text)
            if not self._parses(text):
                text, ended = self._salvaged(text)
                self._parses(text)
        events = self._parsed
        self.seen += len(events)
        return events, ended

    def _repaired(self, text: bytes) -> bytes:
        blanked = text.translate(_CONTROL)
        if blanked != text:
            at = next(at for at, (a, b) in enumerate(zip(text, blanked, strict=True)) if a != b)
            event = text.rfind(b'"name"', 0, at)
            shown = text[event : event + 60].translate(_CONTROL).decode("utf-8", "replace") if event >= 0 else ""
            self.notes.append(
                f"{self.path.name}: control character at byte {self._offset + at} (0x{text[at]:02x}) "
                + "replaced by a blank"
                + (f" (event with {shown!r})" if shown else "")
            )
        whole = blanked.decode("utf-8", "replace").encode()
        if whole != blanked:
            self.notes.append(f"{self.path.name}: bytes that are not UTF-8 replaced")
        return whole

    def _salvaged(self, text: bytes) -> tuple[bytes, bytes | None]:
        """The events of a damaged block that decode by themselves, and what follows the list where it ends here."""
        edges = [match.start() + 1 for match in _BETWEEN.finditer(text)]
        starts = [len(text) - len(text.lstrip()), *(text.index(b"{", edge) for edge in edges)]
        ends = [*edges, len(text)]
        good: list[bytes] = []
        at, first, lost = 0, -1, 0
        while at < len(starts):
            for last in range(at, min(at + _JOINS, len(ends))):
                piece = text[starts[at] : ends[last]]
                if self._alone(piece):
                    good.append(piece)
                    at = last + 1
                    break
                close = self._list_end(piece)
                if close is not None:
                    kept = [*good, *([piece[:close]] if piece[:close].strip() else [])]
                    return b",".join(kept), text[starts[at] + close + 1 :]
            else:
                first, lost = (starts[at] if first < 0 else first), lost + 1
                at += 1
        if lost:
            self.skipped += lost
            self.notes.append(
                f"{self.path.name}: {lost} damaged event{'s' * (lost > 1)} skipped, the first at byte "
                f"{self._offset + first}"
            )
        return b",".join(good), None

    def _list_end(self, piece: bytes) -> int | None:
        """Where a piece that begins with an event, or with nothing, ends the list of events."""
        for match in _CLOSE.finditer(piece):
            event = piece[: match.start()]
            if (not event.strip() or self._alone(event)) and not self._list:
                return match.start()
        return None

    def _alone(self, piece: bytes) -> bool:
        """Is a piece an event by itself, with its phase (so no object inside one)?"""
        try:
            return bool(self._event_of[self._exact].decode(piece).ph)
        except _BAD:
            return False

    def _last(self, buffer: bytes) -> Iterator[list[Event]]:
        """The last block: up to the end of the list, or of the last whole event where the file is cut off."""
        closes = [match.start() for match in _CLOSE.finditer(buffer, max(0, len(buffer) - (1 << 20)))]
        for close in reversed(closes[-_TRIES:]):
            text = buffer[:close]
            if not self._suffix(buffer[close + 1 :]):
                continue
            if not text.strip():
                yield []
                return
            if self._parses(text) or self._ends_event(text, len(text)):
                yield self._decode(text)[0]
                return
        text = buffer.rstrip()
        if text.endswith(b"]") and not self._list:
            text = text[:-1].rstrip()
        text = text.removesuffix(b",")
        cuts = [len(text), *self._cuts(text)] if text else []
        keep = next((cut for cut in cuts if self._parses(text[:cut])), None)
        if keep is None:
            keep = next((cut for cut in cuts if self._ends_event(text, cut)), 0)
        events = self._decode(text[:keep])[0] if keep else []
        self.notes.append(
            f"{self.path.name}: the file is cut off; {self.seen} whole events were read, "
            f"{len(buffer) - keep} bytes after them were not"
        )
        yield events

    def _parses(self, text: bytes) -> bool:
        try:
            self._parsed = self._parse(text)
        except _BAD:
            return False
        self._again = text
        return True

    @staticmethod
    def _clean(text: bytes) -> bytes:
        return text.translate(_CONTROL).decode("utf-8", "replace").encode()

    def _suffix(self, rest: bytes) -> bool:
        """Take the header's rest; is this what follows the list of events in a whole file?"""
        rest = rest.translate(_CONTROL).strip()
        if not rest or self._list:
            return self._list and not rest
        if rest[:1] == b",":
            rest = rest[1:]
        elif rest != b"}":
            return False
        try:
            self.header = self.header.with_rest(msgspec.json.decode(b"{" + rest, type=Header))
        except _BAD:
            return False
        return True
