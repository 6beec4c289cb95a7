"""Inputs of several kinds in one diagnosis, and folders with something damaged in them."""

from pathlib import Path

import pytest
from tests.traces.made_exports import block, segment, snapshot

from meshwright.basics.errors import InputError
from meshwright.diagnosis.inputs import diagnose_inputs

RATES = "devices,nodes,samples_per_s\n8,1,240\n16,2,160\n24,3,120\n"


def test_kinds_are_joined_and_the_dearest_finding_comes_first(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(RATES)
    (tmp_path / "out.log").write_text(
        "DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.\n"
    )
    found = diagnose_inputs([tmp_path])
    assert [finding.kind for finding in found.findings] == ["missing at start-up", "negative scaling"]
    assert "1 throughput table" in found.window
    assert "1 log" in found.window


def test_a_damaged_file_of_a_folder_is_said_and_one_that_was_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(RATES)
    damaged = snapshot(tmp_path / "s.pickle", [segment(8, [block(0, 8, True)])])
    damaged.write_bytes(damaged.read_bytes()[:40])
    found = diagnose_inputs([tmp_path])
    assert [finding.kind for finding in found.findings] == ["negative scaling"]
    assert any("could not be read" in note and "cut off" in note for note in found.abstained)
    with pytest.raises(InputError, match="cut off"):
        diagnose_inputs([tmp_path / "rates.csv", damaged])
    (tmp_path / "rates.csv").unlink()
    with pytest.raises(InputError, match="cut off"):
        diagnose_inputs([tmp_path])
