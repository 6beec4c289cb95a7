"""Cases G1, G2, G4, G5: throughput tables and what they prove."""

from pathlib import Path

import pytest

from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.files.findings import Diagnosis
from meshwright.files.resolve import read_setup

JOB = """
format = 1
[model]
name = "llama-2-7b"
[cluster]
gpu = "H100-80GB-SXM"
gpus = 64
gpus_per_node = 8
inter_node = "ib-ndr"
[batch]
global = 128
seq_len = 4096
"""


def _found(folder: Path, text: str, job: str = "") -> Diagnosis:
    table = folder / "rates.csv"
    table.write_text(text)
    if not job:
        return diagnose_inputs([table])
    (folder / "job.toml").write_text(job)
    return diagnose_inputs([table], read_setup(folder / "job.toml"))


def test_g1_from_one_node_to_two(tmp_path: Path) -> None:
    text = "devices,nodes,tokens_per_s,global_batch,seq_len\n4,1,48000,32,4096\n8,2,72000,64,4096\n"
    (finding,) = _found(tmp_path, text).findings
    assert finding.kind == "slow link between nodes"
    assert finding.evidence["scaling"] == "weak"
    assert finding.evidence["efficiency"] == pytest.approx(0.75)
    assert finding.evidence["speed_up"] == pytest.approx(1.5)
    sent = finding.evidence["bytes_per_parameter_over_a_node_link"]
    assert sent == {"sharded over all": pytest.approx(5.25), "sharded in the node": pytest.approx(2.0)}
    assert "shard inside the node (4 devices)" in finding.cause
    same = "devices,nodes,tokens_per_s_per_gpu\n4,1,12000\n8,2,9000\n"
    assert _found(tmp_path, same).findings[0].evidence["efficiency"] == pytest.approx(0.75)


def test_g2_seven_times_slower_than_published(tmp_path: Path) -> None:
    (finding,) = _found(tmp_path, "devices,nodes,tokens_per_s\n64,8,64000\n", JOB).findings
    assert finding.kind == "low use of the devices"
    evidence = finding.evidence
    assert evidence["flops_per_device_6p"] == pytest.approx(40.4e12, rel=0.01)
    assert evidence["mfu_6p"] == pytest.approx(0.041, abs=0.0005)
    assert evidence["step_s"] == pytest.approx(8.2, abs=0.05)
    assert 2.9e9 < evidence["bytes_per_device_between_nodes"] < 3.4e9  # type: ignore[operator]
    low, high = evidence["implied_bytes_per_s"]  # type: ignore[misc]
    assert 0.3e9 < low < high < 0.55e9
    assert "fallback to sockets" in finding.cause
    assert "which transport was chosen" in finding.verify
    assert not _found(tmp_path, "devices,nodes,tokens_per_s\n64,8,480000\n", JOB).findings  # the published figure


def test_g4_adding_nodes_makes_it_slower_in_total(tmp_path: Path) -> None:
    text = "devices,nodes,samples_per_s\n8,1,240\n16,2,160\n24,3,120\n"
    found = _found(tmp_path, text)
    (finding,) = found.findings
    assert finding.kind == "negative scaling"
    assert finding.evidence["best_devices"] == 8
    assert finding.evidence["efficiencies"] == {8: 1.0, 16: pytest.approx(1 / 3), 24: pytest.approx(1 / 6)}
    assert finding.evidence["time_ratio_at_first_crossing"] == pytest.approx(3)
    assert "latency or bandwidth between nodes" in finding.cause
    assert "8 devices are best" in finding.cause
    assert finding.verify.startswith("run 2 devices in one node, then as many spread over two")
    rates = "devices,nodes,samples_per_s_per_gpu\n8,1,30\n16,2,10\n24,3,5\n"
    assert _found(tmp_path, rates).findings[0].evidence["totals"] == {8: 240, 16: 160, 24: 120}
    twenty = "devices,nodes,samples_per_s\n8,1,240\n32,4,768\n"  # the second user's: 20 % lost on four nodes
    assert not _found(tmp_path, twenty).findings


def test_g5_strong_scaling_with_too_little_work(tmp_path: Path) -> None:
    text = "devices,nodes,tokens_per_s,global_batch,seq_len\n1,1,2030000,64,1024\n8,1,1560000,64,1024\n"
    (finding,) = _found(tmp_path, text).findings
    assert finding.kind == "too little work per device"
    assert finding.evidence["scaling"] == "strong"
    assert finding.evidence["speed_up"] == pytest.approx(0.77, abs=0.005)
    assert finding.evidence["efficiency"] == pytest.approx(0.096, abs=0.0005)


def test_g5_a_weak_set_with_its_spread(tmp_path: Path) -> None:
    rows = [f"{n},1,{n * 1000 + k},{n * 4}" for n in (1, 2, 4, 8) for k in (-10, 0, 10)]
    found = _found(tmp_path, "devices,nodes,tokens_per_s,global_batch\n" + "\n".join(rows) + "\n")
    assert not found.findings
    (series,) = next(iter(found.tables.values()))  # type: ignore[misc]
    assert series["scaling"] == "weak"
    assert series["points"][0]["repeats"] == 3
    assert series["points"][0]["spread"] == pytest.approx(0.02)
    assert not any("repeats" in note for note in found.abstained)


def test_g5_other_hardware_is_not_compared(tmp_path: Path) -> None:
    text = "devices,tokens_per_s,gpu\n8,8000,A100\n128,384000,H100\n"
    found = _found(tmp_path, text)
    assert [finding.kind for finding in found.findings] == ["mixed hardware"]
    unsaid = _found(tmp_path, "devices,tokens_per_s\n8,8000\n128,384000\n")
    (finding,) = unsaid.findings
    assert finding.kind == "impossible reading"
    assert finding.evidence["efficiency"] == pytest.approx(3.0)


def test_g5_a_rate_beyond_the_peak_is_impossible(tmp_path: Path) -> None:
    (finding,) = _found(tmp_path, "devices,nodes,tokens_per_s_per_gpu\n64,8,64000\n", JOB).findings
    assert finding.kind == "impossible reading"
