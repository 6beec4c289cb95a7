"""[[cluster.groups]] and machine = "machine.toml": what they make, and what contradicts itself."""

from pathlib import Path

import pytest

from meshwright.basics.quantities import GIB
from meshwright.cluster import local
from meshwright.cluster.machine import VisibleGpu
from meshwright.files.job import parse_job
from meshwright.files.resolve import resolved_text, setup_of

from .test_cluster_of import REST, cluster, complaints

TWO = 'groups = [{gpu = "H100", gpus = 16}, {gpu = "A100-40GB", gpus = 8, memory_gib = 30}]\ninter_node = "ib-hdr"\n'


def test_groups_become_parts_in_the_order_of_the_ranks() -> None:
    found = cluster(TWO)
    assert [(part.device.name, part.gpus, part.intra.name) for part in found.parts] == [
        ("H100-SXM", 16, "nvlink4"), ("A100-40GB-SXM", 8, "nvlink3"),
    ]  # fmt: skip
    assert (found.gpus, found.device.name, found.memory_bytes) == (24, "A100-40GB-SXM", 30 * GIB)


def test_one_group_is_a_plain_cluster() -> None:
    assert cluster('groups = [{gpu = "H100", gpus = 8}]') == cluster('gpu = "H100"\ngpus = 8')


def test_the_stated_total_must_be_the_sum() -> None:
    assert cluster(TWO + "gpus = 24").gpus == 24
    (said,) = complaints(TWO + "gpus = 32")
    assert "cluster.gpus = 32: the groups have 16 + 8 = 24 devices" in said


def test_what_belongs_to_one_kind_stands_in_its_group() -> None:
    said = complaints(TWO + 'gpu = "H100"\nmemory_gib = 40\npeak_tflops = {bf16 = 100}')
    assert [text.split(" = ")[0] for text in said] == ["cluster.gpu", "cluster.memory_gib", "cluster.peak_tflops"]


def test_every_group_is_checked() -> None:
    said = complaints(
        'groups = [{gpu = "H100", gpus = 8, peak_tflops = {bf16 = 1979}}, {gpu = "A1000", gpus = 8}, '
        '{gpu = "A100", gpus = 8, intra_node = "nvlnk3"}]'
    )
    assert [text.split(" = ")[0].split(":")[0] for text in said] == [
        "cluster.groups[0].peak_tflops.bf16", "cluster.groups[1].gpu", "cluster.groups[2].intra_node",
        "cluster.inter_node",
    ]  # fmt: skip


def test_ill_typed_groups_are_refused_by_place() -> None:
    assert "at least 1 entries" in complaints("groups = []")[0]
    (said,) = complaints('inter_node = 25\ngroups = [{gpu = "H100", gpus = 8}, {gpu = "H100", gpus = 0}]')
    assert "cluster.groups[1].gpus = 0" in said
    (unknown,) = complaints('inter_node = 25\ngroups = [{gpu = "H100", gpus = 8, intra = 3}]')
    assert "did you mean cluster.groups[0].intra_node?" in unknown


def test_the_resolved_job_shows_the_groups() -> None:
    text = resolved_text(parse_job(f"[cluster]\n{TWO}{REST}"))
    assert "groups = [{gpu = " in text
    assert setup_of(parse_job(text)).proposal.cluster == cluster(TWO)


def machine(folder: Path, text: str) -> None:
    (folder / "machine.toml").write_text(text)


def test_the_only_device_of_a_machine_file_is_meant(tmp_path: Path) -> None:
    machine(tmp_path, "[devices.H100]\npeak_tflops = {bf16 = 800}")
    found = cluster('machine = "machine.toml"\ngpus = 8', tmp_path)
    assert (found.device.name, found.device.peak_flops["bf16"].value) == ("H100-SXM", 800e12)
    machine(tmp_path, "[devices.H100]\n[devices.A100]")
    (said,) = complaints('machine = "machine.toml"\ngpus = 8', tmp_path)
    assert "cluster.gpu: is required: machine.toml describes several devices (one of H100, A100)" in said


def test_a_worker_of_this_machine_takes_the_files_figures(tmp_path: Path) -> None:
    machine(
        tmp_path,
        '[devices."any core"]\nkind = "cpu"\nbandwidth_gb = 7\nmemory_gib = 0.25\n[links.loopback]\ngb_per_s = 1',
    )
    found = cluster('machine = "machine.toml"\ngpus = 2', tmp_path)
    if found.device.kind == "cpu":
        assert found.local
        assert found.device.memory_bandwidth.value == 7e9
        assert found.memory_bytes == GIB // 4
        assert found.intra.bytes_per_s.value == found.inter.bytes_per_s.value == 1e9


def driver(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shown = VisibleGpu(name, 24 * GIB, nvlink=False, pcie=4)
    monkeypatch.setattr(local, "visible_gpus", lambda: (shown, shown))


def test_a_gpu_of_this_machine_that_nobody_knows_takes_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, "NVIDIA Quadro X")
    (said,) = complaints('gpu = "local"')
    assert "give the numbers: cluster.memory_gib, cluster.peak_tflops, cluster.bandwidth_gb;" in said
    found = cluster('gpu = "local"\nmemory_gib = 23\npeak_tflops = {fp16 = 50}\nbandwidth_gb = 600')
    assert (found.device.name, found.gpus, found.local, found.intra.name) == ("NVIDIA Quadro X", 2, True, "pcie4")
    assert found.memory_bytes == 23 * GIB


def test_a_known_gpu_of_this_machine_takes_measured_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver(monkeypatch, "NVIDIA GeForce RTX 3090")
    machine(tmp_path, "[devices.RTX-3090]\nbandwidth_gb = 870\n[links.pcie4]\ngb_per_s = 20")
    found = cluster('gpu = "local"\nmachine = "machine.toml"', tmp_path)
    assert (found.device.memory_bandwidth.value, found.intra.bytes_per_s.value) == (870e9, 20e9)
    (said,) = complaints('gpu = "local"\npeak_tflops = {bf16 = 142}', tmp_path)
    assert "twice the dense peak of RTX-3090" in said


def test_what_is_wrong_with_the_machine_file_comes_with_the_rest(tmp_path: Path) -> None:
    machine(tmp_path, "[devices.H100]\nbandwith_gb = 3")
    said = complaints('machine = "machine.toml"\ngpu = "A1000"\ngpus = 8', tmp_path)
    assert "did you mean devices.H100.bandwidth_gb?" in said[0]
    assert "machine.toml" in said[0]
    assert "cluster.gpu" in said[1]
    (missing,) = complaints('machine = "nowhere.toml"\ngpu = "H100"\ngpus = 8', tmp_path)
    assert "nowhere.toml: cluster.machine: there is no such file" in missing
