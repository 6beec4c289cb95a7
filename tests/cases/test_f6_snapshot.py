"""Case F6: empty evidence must not read as zero; an out-of-memory error names what filled the card."""

from pathlib import Path

from tests.traces.made_exports import block, frame, segment, snapshot

from meshwright.diagnosis.inputs import diagnose_inputs

MIB = 2**20


def test_f6_a_snapshot_without_history_says_so(tmp_path: Path) -> None:
    file = snapshot(
        tmp_path / "s.pickle", [segment(20 * MIB, [block(0, 5 * MIB, True), block(5 * MIB, 15 * MIB, False)])]
    )
    found = diagnose_inputs([file])
    assert not found.findings
    assert any("no allocation history recorded, only current blocks" in text for text in found.abstained)
    assert any("_record_memory_history" in text for text in found.abstained)
    figures = found.memory[str(file)][0]  # type: ignore[index]
    assert figures["peak_active_mib"] is None
    assert figures["free_share_at_peak"] is None
    assert (figures["reserved_mib"], figures["inactive_split_mib"]) == (20, 15)


def test_f6_an_oom_lists_the_largest_live_groups_with_the_failing_size(tmp_path: Path) -> None:
    attention, optimizer = frame("/job/model.py", 41, "attend"), frame("/job/adam.py", 7, "step")
    torch = frame("/site-packages/torch/nn/functional.py", 1, "softmax")
    held = [block(0, 40 * MIB, True, [torch, attention]), block(40 * MIB, 60 * MIB, True, [optimizer])]
    history = [
        {"action": "alloc", "addr": 0, "size": 40 * MIB, "time_us": 1, "frames": [torch, attention]},
        {"action": "oom", "addr": 0, "size": 77 * MIB, "time_us": 2, "frames": [torch, attention]},
    ]
    found = diagnose_inputs([snapshot(tmp_path / "s.pickle", [segment(100 * MIB, held)], history)])
    (finding,) = found.findings
    assert finding.kind == "out of memory"
    assert "a request of 77.00 MiB failed" in finding.cause
    assert "the device was full" in finding.cause
    groups = finding.evidence["largest_live"]
    assert [(g["stack"], g["mib"]) for g in groups] == [("job/adam.py:7 step", 60), ("job/model.py:41 attend", 40)]  # type: ignore[attr-defined]
    assert not finding.change


def test_f6_an_oom_beside_free_pieces_is_fragmentation(tmp_path: Path) -> None:
    blocks = [block(k * MIB, MIB, k % 2 == 0) for k in range(100)]
    history = [{"action": "oom", "addr": 0, "size": 8 * MIB, "time_us": 2, "frames": []}]
    (finding,) = diagnose_inputs([snapshot(tmp_path / "s.pickle", [segment(100 * MIB, blocks)], history)]).findings
    assert "in pieces too small for it" in finding.cause
    assert finding.change == {"environment.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
