"""Memory snapshots: the published table to its digits, the replay, and fragmentation at the peak only."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import answers_or_says, block, segment, snapshot

from meshwright.basics.errors import InputError
from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.diagnosis.memory_replay import device_memory
from meshwright.traces.snapshot import Block, DeviceSnapshot, Event, Segment, read_snapshot

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "memory-snapshots"
MIB = 2**20

# reserved, active, free whole segments, inactive split, peak active (MiB), free at dump %, free at peak %
TABLE = {
    "medium_128_training": (6900, 6501, 328, 71, 6696, 5.8, 3.0),
    "medium_1024_training": (24012, 6556, 11046, 6410, 23090, 72.7, 3.8),
    "medium_128_inference": (1682, 1624, 44, 14, 1658, 3.4, 1.4),
}


@pytest.mark.skipif(not REAL.is_dir(), reason="no folder of public traces (../shared/traces)")
@pytest.mark.parametrize("name", TABLE)
def test_published_figures_to_the_digit(name: str) -> None:
    found = diagnose_inputs([REAL / f"{name}_memory_snapshot.pickle"])
    (figures,) = next(iter(found.memory.values()))  # type: ignore[misc]
    keys = ("reserved_mib", "active_mib", "free_whole_segments_mib", "inactive_split_mib", "peak_active_mib")
    mib = [round(figures[key]) for key in keys]
    shares = [round(100 * figures[key], 1) for key in ("free_share_at_dump", "free_share_at_peak")]
    assert (*mib, *shares) == TABLE[name]
    assert not found.findings  # 72.7 % free when it was dumped is no fragmentation: at the peak it was 3.8 %


def _device(history: list[tuple[str, int, int]], live: list[tuple[int, int]]) -> DeviceSnapshot:
    blocks = tuple(Block(address, size, size, True, ()) for address, size in live)
    size = sum(size for _, size in live)
    events = tuple(Event(action, address, n, k, ()) for k, (action, address, n) in enumerate(history))
    return DeviceSnapshot(0, (Segment(size, size, blocks),), events)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.data())
def test_the_peak_does_not_depend_on_what_was_held_before_recording(sizes: list[int], data: st.DataObject) -> None:
    free = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    base = data.draw(st.integers(0, 5000))
    history = [("alloc", k, size) for k, size in enumerate(sizes)] + [("free_completed", k, sizes[k]) for k in free]
    live = [(k, size) for k, size in enumerate(sizes) if k not in free] + ([(10**6, base)] if base else [])
    peak = device_memory(_device(history, live)).peak
    assert peak is not None
    assert peak.active == sum(sizes) + base  # the top of a mountain: all allocated, nothing freed yet


def test_fragmentation_is_judged_at_the_peak(tmp_path: Path) -> None:
    blocks = [block(k * MIB, MIB, k % 2 == 0) for k in range(100)]
    history = [{"action": "alloc", "addr": 98 * MIB, "size": MIB, "time_us": 1, "frames": []}]
    (finding,) = diagnose_inputs([snapshot(tmp_path / "s.pickle", [segment(100 * MIB, blocks)], history)]).findings
    assert finding.kind == "fragmentation"
    assert finding.evidence["free_share_at_peak"] == pytest.approx(0.5)
    again = snapshot(tmp_path / "t.pickle", [segment(100 * MIB, blocks)], history, expandable=True)
    assert diagnose_inputs([again]).findings[0].change == {}  # already so


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.pickle"
    file.write_bytes(b"\x80\x04}.")
    with pytest.raises(InputError, match="no memory snapshot"):
        read_snapshot(file)
    shared = [1] * 2000
    bomb = {"device": 0, "total_size": 1, "blocks": [{"size": 1}] * 2000}
    with pytest.raises(InputError, match="repeats its blocks"):
        read_snapshot(snapshot(file, [bomb] * len(shared)))


def test_malformed_values_are_left_out_and_said(tmp_path: Path) -> None:
    odd = {"device": "x", "total_size": -4, "blocks": [7, {"size": None, "address": 2.5, "state": 3}]}
    found = read_snapshot(snapshot(tmp_path / "s.pickle", [odd, 3], [{"action": "of a later version"}]))
    assert "malformed values" in found.notes[0]


ODD = st.none() | st.booleans() | st.integers(-5, 2**65) | st.floats() | st.text(max_size=4)
BLOCK = st.dictionaries(st.sampled_from(["address", "size", "requested_size", "state", "frames"]), ODD | st.lists(ODD))
SEGMENT = st.dictionaries(
    st.sampled_from(["device", "total_size", "active_size", "blocks"]), ODD | st.lists(BLOCK | ODD, max_size=4)
)
ENTRY = st.fixed_dictionaries(
    {"action": st.sampled_from(["alloc", "free_completed", "oom", "segment_alloc", "snapshot"]) | ODD},
    optional={
        "addr": ODD,
        "size": ODD,
        "time_us": ODD,
        "frames": ODD | st.lists(st.dictionaries(st.just("filename"), ODD)),
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SEGMENT | ODD, max_size=4), st.lists(ENTRY | ODD, max_size=8))
def test_any_values_are_read_or_refused_in_a_line(tmp_path: Path, segments: list, history: list) -> None:
    file = snapshot(tmp_path / "s.pickle", segments, history)
    answers_or_says(lambda: diagnose_inputs([file]))
