"""What a memory snapshot says of one device: at the dump, at the peak of its history, and where a request failed."""

from collections import Counter
from dataclasses import dataclass

from meshwright.traces.snapshot import DeviceSnapshot, Event, Frames

_SIGN = {"alloc": 1, "free_completed": -1}
_SEGMENT_SIGN = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(frozen=True, slots=True)
class Group:
    """Live blocks that were allocated at one place."""

    stack: Frames  # empty: allocated where no stack was recorded, or before recording began
    size: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes at one moment of the history."""

    active: int
    reserved: int

    @property
    def free_share(self) -> float:
        """The part of what is reserved that no tensor holds."""
        return 1 - self.active / self.reserved if self.reserved else 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed: its bytes, what was held then, and the largest groups of it."""

    size: int
    at: Moment
    groups: tuple[Group, ...]
    stack: Frames


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device of a snapshot, bytes. `peak` None: no history was recorded."""

    device: int
    reserved: int
    active: int
    free_whole: int  # in segments without a live block: the allocator can give them back
    inactive_split: int  # free blocks beside live ones: the fragmentation
    rounding: int  # more than was asked for, in live blocks
    largest_free: int
    peak: Moment | None
    events: int
    groups: tuple[Group, ...]  # live at the dump, largest first
    failures: tuple[Failure, ...]

    @property
    def now(self) -> Moment:
        """The moment of the dump."""
        return Moment(self.active, self.reserved)


def device_memory(device: DeviceSnapshot) -> DeviceMemory:
    """The memory of one device of a snapshot.

    The history is replayed: + alloc, - free_completed, and the segments likewise, anchored at the end in the state of
    the dump, because what was held before recording began is not in it.
    """
    reserved = sum(segment.size for segment in device.segments)
    active = sum(segment.active for segment in device.segments)
    whole = [s for s in device.segments if not any(block.live for block in s.blocks)]
    split = [s for s in device.segments if any(block.live for block in s.blocks)]
    free = [block.size for segment in device.segments for block in segment.blocks if not block.live]
    live = [block for segment in device.segments for block in segment.blocks if block.live]
    moments = _moments(device.history, active, reserved)
    return DeviceMemory(
        device.device, reserved, active,
        free_whole=sum(segment.size for segment in whole),
        inactive_split=sum(block.size for segment in split for block in segment.blocks if not block.live),
        rounding=sum(max(0, block.size - block.requested) for block in live),
        largest_free=max(free, default=0),
        peak=max(moments, key=lambda moment: moment.active) if moments else None,
        events=len(device.history),
        groups=_grouped([(block.frames, block.size) for block in live]),
        failures=_failures(device, moments),
    )  # fmt: skip


def _moments(history: tuple[Event, ...], active: int, reserved: int) -> list[Moment]:
    """The state before the first event and after each."""
    if not history:
        return []
    back = [Moment(active, reserved)]
    for event in reversed(history):
        active -= _SIGN.get(event.action, 0) * event.size
        reserved -= _SEGMENT_SIGN.get(event.action, 0) * event.size
        back.append(Moment(max(0, active), max(0, reserved)))
    return back[::-1]


def _failures(device: DeviceSnapshot, moments: list[Moment]) -> tuple[Failure, ...]:
    """The failed requests, at most the last four, each with what was live then."""
    at = [index for index, event in enumerate(device.history) if event.action == "oom"][-4:]
    if not at:
        return ()
    allocated: dict[int, tuple[Frames, int]] = {}
    known: dict[int, list[tuple[Frames, int]]] = {}
    freed_early: list[tuple[int, int]] = []  # (event, bytes) of blocks from before the history, freed in it
    for index, event in enumerate(device.history):
        if event.action == "alloc":
            allocated[event.address] = event.frames, event.size
        elif event.action == "free_completed" and allocated.pop(event.address, None) is None:
            freed_early.append((index, event.size))
        elif index in at:
            known[index] = list(allocated.values())
    dumped = [block for segment in device.segments for block in segment.blocks if block.live]
    older = [(block.frames, block.size) for block in dumped if block.address not in allocated]
    found = []
    for index in at:
        later = [((), size) for when, size in freed_early if when > index]
        event = device.history[index]
        groups = _grouped([*known[index], *older, *later])
        found.append(Failure(event.size, moments[index], groups, event.frames))
    return tuple(found)


def _grouped(blocks: list[tuple[Frames, int]]) -> tuple[Group, ...]:
    sizes: Counter[Frames] = Counter()
    counts: Counter[Frames] = Counter()
    for frames, size in blocks:
        place = _place(frames)
        sizes[place] += size
        counts[place] += 1
    return tuple(Group(place, size, counts[place]) for place, size in sizes.most_common(10))


def _place(frames: Frames) -> Frames:
    """The innermost three frames outside torch, or the innermost ones where all are torch's."""
    own = tuple(frame for frame in frames if not frame.startswith(("torch/", "nn/", "modules/", "optim/", "autograd/")))
    return (own or frames)[:3]
