"""Memory snapshots: what filled the device, whether it was fragmented when it was fullest, why a request failed."""

from collections.abc import Sequence
from pathlib import Path

from meshwright.basics.quantities import MIB, bytes_text
from meshwright.diagnosis.memory_replay import DeviceMemory, Failure, Group, device_memory
from meshwright.diagnosis.said import Said, counted
from meshwright.diagnosis.thresholds import FRAGMENTED
from meshwright.files.findings import Finding
from meshwright.traces.snapshot import read_snapshot

_RECORD = (
    "torch.cuda.memory._record_memory_history(max_entries=100000, stacks='python') before the steps, "
    "_dump_snapshot after them"
)
_EXPANDABLE = {"environment.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def diagnose_snapshots(paths: Sequence[Path]) -> Said:
    """What the snapshots say, a device at a time. Raises InputError when one cannot be read."""
    memory: dict[str, object] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    for path in paths:
        snapshot = read_snapshot(path)
        notes += [f"{path.name}: {note}" for note in snapshot.notes]
        devices = [device_memory(device) for device in snapshot.devices if device.segments or device.history]
        if not devices:
            notes.append(f"{path.name}: no memory is reserved in it and no history was recorded: nothing to say")
        expandable = snapshot.settings.get("expandable_segments") is True
        memory[str(path)] = [_figures(device) for device in devices]
        for device in devices:
            if device.peak is None:
                notes.append(
                    f"{path.name}: no allocation history recorded, only current blocks: neither the peak nor the "
                    f"fragmentation at it can be said; record with {_RECORD}"
                )
            elif not device.failures and device.peak.free_share >= FRAGMENTED:
                findings.append(_fragmented(path, device, expandable))
            findings += [_failed(path, device, failure, expandable) for failure in device.failures[-1:]]
    if findings:
        notes.append("contexts and NCCL's own buffers lie outside a snapshot: they are not in its figures")
    return Said(
        counted(len(memory), "memory snapshot"), memory=memory, findings=tuple(findings), abstained=tuple(notes)
    )


def _figures(device: DeviceMemory) -> dict[str, object]:
    """The figures of one device, MiB and shares; what was not recorded is None."""
    peak = device.peak
    return {
        "device": device.device, "reserved_mib": device.reserved / MIB, "active_mib": device.active / MIB,
        "free_whole_segments_mib": device.free_whole / MIB, "inactive_split_mib": device.inactive_split / MIB,
        "rounding_mib": device.rounding / MIB, "free_share_at_dump": device.now.free_share,
        "peak_active_mib": None if peak is None else peak.active / MIB,
        "peak_reserved_mib": None if peak is None else peak.reserved / MIB,
        "free_share_at_peak": None if peak is None else peak.free_share,
        "history_events": device.events,
        "largest_live": [_shown(group) for group in device.groups[:5]],
        "failed_requests_mib": [failure.size / MIB for failure in device.failures],
    }  # fmt: skip


def _shown(group: Group) -> dict[str, object]:
    where = " < ".join(group.stack) if group.stack else "no stack recorded (or allocated before recording began)"
    return {"stack": where, "mib": group.size / MIB, "blocks": group.blocks}


def _fragmented(path: Path, device: DeviceMemory, expandable: bool) -> Finding:
    peak = device.peak
    assert peak is not None
    return Finding(
        kind="fragmentation",
        ranks=(),
        stages=(),
        cause=(
            f"at the peak, with {bytes_text(peak.active)} in use, {bytes_text(peak.reserved - peak.active)} more were "
            f"reserved and free ({peak.free_share:.0%}): the allocator holds memory in pieces that nothing fits"
        ),
        evidence={
            "file": str(path), "device": device.device, "peak_active_bytes": peak.active,
            "peak_reserved_bytes": peak.reserved, "free_share_at_peak": peak.free_share, "threshold": FRAGMENTED,
        },
        cost_s_per_step=None,
        share=None,
        confidence="medium",
        change={} if expandable else _EXPANDABLE,
        predicted_gain=None,
        verify="record a snapshot again over the same steps; compare the free share at the peak",
    )  # fmt: skip


def _failed(path: Path, device: DeviceMemory, failure: Failure, expandable: bool) -> Finding:
    free = max(0, failure.at.reserved - failure.at.active)
    scattered = free >= failure.size
    largest = failure.groups[0] if failure.groups else None
    filled = "" if largest is None else f"; most of it was allocated at {_shown(largest)['stack']}"
    held = f"with {bytes_text(failure.at.active)} in use of {bytes_text(failure.at.reserved)} reserved"
    cause = (
        f"a request of {bytes_text(failure.size)} failed {held}: "
        + (f"{bytes_text(free)} were free, in pieces too small for it" if scattered else "the device was full")
        + filled
    )
    return Finding(
        kind="out of memory",
        ranks=(),
        stages=(),
        cause=cause,
        evidence={
            "file": str(path), "device": device.device, "failed_bytes": failure.size,
            "active_bytes": failure.at.active, "reserved_bytes": failure.at.reserved, "fragmented": scattered,
            "asked_at": " < ".join(failure.stack[:3]),
            "largest_live": [_shown(group) for group in failure.groups],
        },
        cost_s_per_step=None,
        share=None,
        confidence="high",
        change=_EXPANDABLE if scattered and not expandable else {},
        predicted_gain=None,
        verify=f"meshwright memory PLAN --oom {failure.size / MIB:.2f}MiB names the tensor; then run again",
    )  # fmt: skip
