"""What kind of memory figure a measured row prints, and the predicted figure that is to be compared with it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from meshwright.basics.quantities import GIB
from meshwright.files.prediction import StageMemory
from meshwright.files.rows import Row

MemoryKind = Literal["allocated", "reserved", "device"]

_GB = 1e9 / GIB  # GiB in one GB

# Sources that print "memory" and say elsewhere what they mean; the first pattern found in a row's framework decides.
_BY_FRAMEWORK: tuple[tuple[str, MemoryKind], ...] = (
    (r"oneflow", "device"),  # nvidia-smi, as their scripts read it
    (r"primus", "device"),  # a share of the device's memory
    (r"megatron.?deepspeed", "device"),  # BigScience's chronicles watch the devices
    (r"intern", "device"),
    (r"torchtitan", "reserved"),  # its log prints max_memory_reserved
)


@dataclass(frozen=True, slots=True)
class MemoryFigure:
    """A measured peak in GiB. `low_gib` is less than `gib` where the source prints GB without saying whether 10^9 or
    2^30 bytes are meant. `rank` is the pipeline rank it belongs to; None: the fullest."""

    kind: MemoryKind
    gib: float
    low_gib: float
    rank: int | None = None

    def error(self, predicted_gib: float) -> float:
        """Predicted over measured, less 1; of what the figure may mean, the reading that lies nearest."""
        nearest = min(max(predicted_gib, self.low_gib), self.gib)
        return predicted_gib / nearest - 1


def memory_figure(row: Row) -> MemoryFigure | None:
    """The measured peak of a row; None where it has none."""
    if row.peak_memory_gib is None:
        return None
    said = f"{row.peak_memory_stated} {row.notes}".lower()
    stated = row.peak_memory_stated
    unsure = re.search(r"GB|MB|unit not printed", stated) is not None
    low = row.peak_memory_gib * (_GB if unsure or not stated else 1.0)
    return MemoryFigure(memory_kind(row), row.peak_memory_gib, low, 0 if "rank-0" in said else None)


def ran_out(row: Row) -> bool:
    """Does the row say that the run ended for lack of memory?"""
    return row.step_seconds is None and "OOM" in row.peak_memory_stated.upper()


def memory_kind(row: Row) -> MemoryKind:
    """What a source counts as memory, whether or not this row has a figure."""
    said = f"{row.peak_memory_stated} {row.notes}".lower()
    if re.search(r"allocated", said):
        return "allocated"
    if re.search(r"reserved", said):
        return "reserved"
    if re.search(r"nvidia-smi|rocm-smi|of device memory|whole device", said):
        return "device"
    framework = row.framework.lower()
    return next((kind for pattern, kind in _BY_FRAMEWORK if re.search(pattern, framework)), "allocated")


def predicted_gib(figure: MemoryFigure, stages: Sequence[StageMemory]) -> float:
    """The figure of the same kind that was predicted, in GiB."""
    return counted_gib(stages, figure.kind, figure.rank)


def counted_gib(stages: Sequence[StageMemory], kind: MemoryKind, rank: int | None = None) -> float:
    """GiB of one pipeline rank as that kind counts them; of the fullest without one."""
    chosen = stages if rank is None else stages[rank : rank + 1]
    return max(counted(stage, kind) for stage in chosen) / GIB


def counted(stage: StageMemory, kind: MemoryKind) -> int:
    """Bytes of one rank as that kind counts them: tensors; with what the allocator holds; with the context."""
    left_out = {"allocated": ("reserve", "context"), "reserved": ("context",), "device": ()}[kind]
    return stage.total - sum(stage.parts.get(name, 0) for name in left_out)
