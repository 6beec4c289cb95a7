"""What is read of a trace of torch.profiler: the fields that are used, typed, all others skipped."""

from decimal import Decimal
from typing import Any

import msgspec

EXACT_FLOATS = 2.0**43
"""Microseconds below which a float64 still holds nanoseconds."""


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
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_use: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` are microseconds."""

    ph: str = ""
    cat: str | None = None
    name: Any = ""
    tid: Any = None
    ts: int | float = 0
    dur: int | float = 0
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """An event whose times keep all their decimals."""

    ts: int | Decimal = 0  # type: ignore[assignment]
    dur: int | Decimal = 0  # type: ignore[assignment]


class Distributed(msgspec.Struct, gc=False):
    """Who wrote the file."""

    backend: Any = None
    rank: Any = None
    world_size: Any = None
    pg_config: Any = None


class Header(msgspec.Struct):
    """All of a trace but its events."""

    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=0, name="baseTimeNanoseconds")
    devices: Any = msgspec.field(default=None, name="deviceProperties")

    def with_rest(self, rest: "Header") -> "Header":
        """This header, completed by what the end of the file says."""
        return Header(self.distributed or rest.distributed, self.base_ns or rest.base_ns, self.devices or rest.devices)
