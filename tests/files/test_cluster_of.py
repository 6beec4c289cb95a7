"""From table [cluster] to a cluster: overrides, unlisted devices, shared networks; every complaint at once."""

import math
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.quantities import GIB
from meshwright.cluster.topology import Cluster
from meshwright.files.cluster_of import cluster_of
from meshwright.files.complaints import keys_of
from meshwright.files.job import parse_job
from meshwright.files.tables import ClusterTable

REST = """
[model]
layers = 4
hidden = 64
heads = 8
vocab = 512
[batch]
global = 16
seq_len = 32
"""


def cluster(table: str, folder: Path | None = None) -> Cluster:
    job = parse_job(f"[cluster]\n{table}\n{REST}", None if folder is None else folder / "job.toml")
    return cluster_of(job).cluster


def complaints(table: str, folder: Path | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        cluster(table, folder)
    assert caught.value.exit_code == 2
    return [str(complaint) for complaint in caught.value.complaints]


def test_the_sparse_peak_of_an_h100_is_refused_with_the_dense_one() -> None:
    (said,) = complaints('gpu = "H100"\ngpus = 8\npeak_tflops = {bf16 = 1979}')
    assert said.startswith("cluster.peak_tflops.bf16 = 1979: is twice the dense peak of H100-SXM")
    assert "sparsity" in said
    assert "989.4" in said


@pytest.mark.parametrize(
    ("gpu", "dtype", "sparse"),
    [("A100-80GB", "bf16", 624), ("A100-80GB", "fp16", 624), ("H100", "fp8", 3958), ("H200", "bf16", 1979),
     ("H100-NVL", "bf16", 1671), ("B200", "bf16", 4500), ("GB200", "fp8", 10000), ("L40S", "bf16", 733),
     ("RTX-3090", "bf16", 142), ("MI300X", "bf16", 2615), ("MI355X", "fp8", 10066)],
)  # fmt: skip
def test_so_is_that_of_every_other_device(gpu: str, dtype: str, sparse: float) -> None:
    (said,) = complaints(f'gpu = "{gpu}"\ngpus = 4\npeak_tflops = {{{dtype} = {sparse}}}')
    assert f"cluster.peak_tflops.{dtype} = " in said
    assert "twice the dense peak" in said


def test_both_dies_of_an_mi250x_are_two_devices() -> None:
    (said,) = complaints('gpu = "MI250X"\ngpus = 8\npeak_tflops = {bf16 = 383}')
    assert "two dies" in said
    assert "sparsity" not in said


def test_stated_figures_stand_in_place_of_the_catalogues() -> None:
    found = cluster('gpu = "H100"\ngpus = 8\npeak_tflops = {bf16 = 800}\nbandwidth_gb = 3000\nmemory_gib = 70')
    assert found.device.peak_flops["bf16"].value == 800e12
    assert found.device.peak_flops["bf16"].source == "stated in the job"
    assert found.device.peak_flops["fp16"].value == 989.4e12
    assert found.device.memory_bandwidth.value == 3000e9
    assert found.memory_bytes == 70 * GIB


def test_numbers_make_a_device_that_the_catalogue_lacks() -> None:
    numbers = "memory_gib = 64\npeak_tflops = {bf16 = 400}\nbandwidth_gb = 2000\nintra_node = 100"
    found = cluster(f'gpu = "MyChip"\ngpus = 8\n{numbers}')
    assert (found.device.name, found.device.kind, found.memory_bytes) == ("MyChip", "gpu", 64 * GIB)
    assert set(found.device.peak_flops) == {"bf16"}
    assert found.intra.bytes_per_s.value == 100e9


def test_an_unknown_device_is_told_which_numbers_are_missing() -> None:
    (said,) = complaints('gpu = "A1000"\ngpus = 8\nbandwidth_gb = 2000')
    assert "did you mean 'A100-40GB-SXM'?" in said
    assert "or give the numbers: cluster.memory_gib, cluster.peak_tflops, cluster.intra_node" in said
    (alone,) = complaints('gpu = "MyChip"\ngpus = 1')
    assert "cluster.bandwidth_gb;" in alone  # one device needs no link


def test_the_link_of_the_board_is_meant_when_only_its_kind_is_written() -> None:
    assert cluster('gpu = "A100"\ngpus = 8\nintra_node = "NVLink"').intra.name == "nvlink3"
    assert cluster('gpu = "MI355X"\ngpus = 8\nintra_node = "Infinity Fabric"').intra.name == "infinity-fabric-mi355x"
    assert cluster('gpu = "A100"\ngpus = 8\nintra_node = "PCIe"').intra.name == "pcie4"
    (said,) = complaints('gpu = "L40S"\ngpus = 8\nintra_node = "NVLink"')
    assert "L40S has pcie4" in said


@pytest.mark.parametrize(
    ("keys", "gb"),
    [("", 25), ("nics_per_node = 8", 25), ("nics_per_node = 4", 12.5), ("nics_per_node = 1", 3.125),
     ("nics_per_node = 16", 25), ("oversubscription = 2.0", 12.5), ("nics_per_node = 2\noversubscription = 2.5", 2.5)],
)  # fmt: skip
def test_a_device_gets_its_share_of_the_adapters(keys: str, gb: float) -> None:
    found = cluster(f'gpu = "A100-40GB"\ngpus = 16\ninter_node = "ib-hdr"\n{keys}')
    assert found.inter.bytes_per_s.value == pytest.approx(gb * 1e9)
    assert found.inter.name == "ib-hdr"


def test_adapters_can_stand_in_the_link() -> None:
    found = cluster('gpu = "A100-40GB"\ngpus = 16\ninter_node = "4x HDR200"')
    assert (found.nics_per_node, found.inter.bytes_per_s.value) == (4, 12.5e9)
    (said,) = complaints('gpu = "A100-40GB"\ngpus = 16\ninter_node = "4x HDR200"\nnics_per_node = 8')
    assert "cluster.nics_per_node = 8: contradicts inter_node, which says 4 a node" in said


def test_a_rack_of_72_is_one_domain_over_nodes_of_four() -> None:
    found = cluster('gpu = "GB200"\ngpus = 64')
    assert (found.gpus_per_node, found.nodes, found.joined, found.one_domain) == (4, 16, 72, True)
    (said,) = complaints('gpu = "GB200"\ngpus = 128')
    assert "128 devices in NVLink domains of 72" in said
    assert cluster('gpu = "GB300"\ngpus = 128\ninter_node = "ib-xdr"').joined == 64  # equal shares of two racks


@pytest.mark.parametrize("value", ["0", "-8", "nan", "inf", "1e18", "true", '"80"', "[]"])
@pytest.mark.parametrize("key", ["memory_gib", "bandwidth_gb", "oversubscription", "peak_tflops.bf16"])
def test_figures_out_of_range_are_refused_by_name(key: str, value: str) -> None:
    (said,) = complaints(f'gpu = "A100"\ngpus = 8\n{key} = {value}')
    assert f"cluster.{key} = " in said


@pytest.mark.parametrize("value", ["0", "-8", "1.5", "1000000000000000000", "true", '"8"'])
@pytest.mark.parametrize("key", ["gpus_per_node", "nics_per_node"])
def test_counts_out_of_range_are_refused_by_name(key: str, value: str) -> None:
    (said,) = complaints(f'gpu = "A100"\ngpus = 8\n{key} = {value}')
    assert f"cluster.{key} = " in said


def test_everything_wrong_is_said_at_once() -> None:
    said = complaints('gpu = "A1000"\nintra_node = "nvlnk3"\ninter_node = "RoCE"\npeak_tflops = {bf61 = 100}')
    assert [text.split(" ")[0].rstrip(":") for text in said] == [
        "cluster.gpu", "cluster.peak_tflops.bf61", "cluster.gpus", "cluster.intra_node", "cluster.inter_node",
    ]  # fmt: skip
    (dtype,) = complaints('gpu = "A100"\ngpus = 8\npeak_tflops = {bf61 = 100}')
    assert "did you mean 'bf16'?" in dtype


def test_local_workers_take_stated_figures_too() -> None:
    found = cluster('gpu = "local"\ngpus = 2\nmemory_gib = 0.5\nbandwidth_gb = 12')
    if found.device.kind == "cpu":
        assert found.local
        assert found.device.memory_bandwidth.value == 12e9
        assert found.memory_bytes == GIB // 2


odd = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=8), st.lists(st.integers(), max_size=2),
    st.sampled_from([8, 16, 0.5, 1e18, float("nan")]),
)  # fmt: skip
known_links = st.sampled_from(["nvlink3", "8x HDR200", "NVLink", "RoCE", "0x HDR", "25 gb/s"])
links = st.one_of(known_links, st.text(max_size=9), st.floats(0, 9))
dtypes = st.one_of(st.sampled_from(["bf16", "fp8"]), st.text(max_size=5))
typed = st.fixed_dictionaries(
    {"gpu": st.one_of(st.sampled_from(["H100", "GB200", "local", "MyChip"]), st.text(max_size=9))},
    optional={
        "gpus": st.integers(1, 99), "gpus_per_node": st.integers(1, 99), "intra_node": links, "inter_node": links,
        "memory_gib": st.floats(1e-3, 1e6), "bandwidth_gb": st.floats(1e-3, 1e6), "nics_per_node": st.integers(1, 99),
        "peak_tflops": st.dictionaries(dtypes, st.floats(1, 3e3)),
        "oversubscription": st.floats(1, 1000), "rails": st.booleans(), "machine": st.text(max_size=9),
    },
)  # fmt: skip
keys = [key for key in keys_of(ClusterTable) if key != "groups"]
group_keys = ("gpu", "gpus", "gpus_per_node", "intra_node", "memory_gib", "peak_tflops", "bandwidth_gb")
loose = st.dictionaries(st.sampled_from(keys), odd, max_size=6)


def cluster_or_complaints(table: dict[str, object]) -> Cluster | tuple[Complaint, ...]:
    try:
        return cluster_of(parse_job(tomli_w.dumps({"cluster": table}) + REST)).cluster
    except InputError as error:
        return error.complaints


@settings(max_examples=150, deadline=None)
@given(st.one_of(loose, typed), st.lists(typed, max_size=2))
def test_whatever_is_written_it_is_a_cluster_or_refused_by_name(
    table: dict[str, object], groups: list[dict[str, object]]
) -> None:
    kinds = [{key: value for key, value in group.items() if key in group_keys} for group in groups]
    found = cluster_or_complaints({**table, **({"groups": kinds} if kinds else {})})
    if isinstance(found, tuple):
        assert found
        assert all(complaint.rule and (complaint.field or complaint.file) for complaint in found)
        return
    assert found.gpus >= 1
    assert found.memory_bytes > 0
    assert math.isfinite(found.inter.bytes_per_s.value)
    assert found.inter.bytes_per_s.value > 0
