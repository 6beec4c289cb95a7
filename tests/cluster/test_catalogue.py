"""The catalogue of devices and links: figures of data sheets, names people write, and what happens to others."""

import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB
from meshwright.cluster import catalogue
from meshwright.cluster.catalogue import device, device_names, link, link_names, peak_flops
from meshwright.cluster.names import words


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [("V100-32GB-SXM", "fp16", 125), ("A100-40GB-SXM", "bf16", 312), ("A100-80GB-PCIe", "fp16", 312),
     ("H100-SXM", "bf16", 989.4), ("H100-SXM", "fp8", 1979), ("H100-PCIe", "bf16", 756), ("H200-SXM", "bf16", 989.4),
     ("B200-SXM", "bf16", 2250), ("B200-SXM", "mxfp8", 4500), ("B300-SXM", "bf16", 2250), ("GB200", "bf16", 2500),
     ("GB300", "fp8", 5000), ("MI300X", "bf16", 1307), ("MI355X", "fp8", 5033), ("A100-40GB-SXM", "fp32", 19.5)],
)  # fmt: skip
def test_peaks_are_the_dense_figures(name: str, dtype: str, tflops: float) -> None:
    assert peak_flops(device(name), dtype).value / 1e12 == pytest.approx(tflops, rel=1e-3)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("A100-40GB", "A100-40GB-SXM"), ("a100-80gb", "A100-80GB-SXM"), ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM"),
     ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"), ("NVIDIA H100 80GB HBM3", "H100-SXM"), ("H100", "H100-SXM"),
     ("Tesla V100-SXM2-32GB", "V100-32GB-SXM"), ("NVIDIA GeForce RTX 4090", "RTX-4090"), ("gb200", "GB200"),
     ("AMD Instinct MI300X", "MI300X"), ("A100", "A100-40GB-SXM"), ("V100", "V100-16GB-SXM")],
)  # fmt: skip
def test_names_people_and_drivers_write(written: str, meant: str) -> None:
    assert device(written).name == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [("A100 SXM4 80 GB", "A100-80GB-SXM"), ("80GB A100 SXM", "A100-80GB-SXM"), ("H100 SXM5", "H100-SXM"),
     ("H100-SXM5-80GB HBM3", "H100-SXM"), ("NVIDIA H100 96GB 500W", "H100-96GB"),
     ("H100-96GB-SXM (500 W)", "H100-96GB"), ("H200 SXM5 141GB", "H200-SXM"), ("AMD MI300X OAM", "MI300X"),
     ("PCIe A100 40GB", "A100-40GB-PCIe"), ("MI250X (one GCD counted as a GPU, 64 GB)", "MI250X"),
     ("V100 (32 GB)", "V100-32GB-SXM"), ("V100 (memory size not stated)", "V100-16GB-SXM")],
)  # fmt: skip
def test_words_in_any_order_and_remarks(written: str, meant: str) -> None:
    assert device(written).name == meant


def test_no_two_devices_share_a_name() -> None:
    table = tomllib.loads((Path(catalogue.__file__).with_name("devices.toml")).read_text(encoding="utf-8"))
    names = [(alias, row) for row, values in table.items() for alias in (row, *values.get("aliases", ()))]
    owners: dict[frozenset[str], set[str]] = {}
    for alias, row in names:
        owners.setdefault(words(alias), set()).add(row)
        assert row == "defaults" or device(alias).name == row
    assert {alias: rows for alias, rows in owners.items() if len(rows) > 1} == {}


@pytest.mark.parametrize("name", ["MI250X (128 GB)", "A100 (24 GB)", "H100 or H800", "", "()", "80GB", "SXM"])
def test_names_that_fit_no_device_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown device"):
        device(name)


@pytest.mark.parametrize("name", device_names())
def test_every_device_is_complete_and_sourced(name: str) -> None:
    found = device(name)
    assert 14 * GIB < found.memory_bytes < 300 * GIB
    assert found.kind == "gpu"
    peaks = {dtype: constant.value for dtype, constant in found.peak_flops.items()}
    assert peaks["fp32"] <= peaks["fp16"]
    for low, high in (("bf16", "fp8"), ("fp8", "nvfp4")):
        if low in peaks and high in peaks:
            assert 1.9 < peaks[high] / peaks[low] < 3.1  # a sparse figure among dense ones would double a ratio
    figures = (*found.peak_flops.values(), found.memory_bandwidth, found.launch_s, found.reserved_bytes)
    assert all(figure.source and figure.value > 0 for figure in figures)
    assert found.launch_s.origin == found.reserved_bytes.origin == "guessed"
    if found.nvlink is not None:
        assert link(found.nvlink).bytes_per_s.value > 50e9


@pytest.mark.parametrize(
    ("name", "gb"),
    [("nvlink3", 300), ("NVLink4", 450), ("nvlink5", 900), ("ib-hdr", 25), ("ib-ndr", 50), ("efa", 50),
     ("slingshot-11", 25), ("ethernet-10", 1.25), (25, 25), (12.5, 12.5), ("25", 25), ("25 GB/s", 25)],
)  # fmt: skip
def test_links_are_one_direction_of_one_device(name: str | float, gb: float) -> None:
    assert link(name).bytes_per_s.value == pytest.approx(gb * 1e9)
    assert link(name).latency_s.origin == "guessed"


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="A100-40GB-SXM"):
        device("A100-41GB")
    with pytest.raises(InputError, match="nvlink"):
        link("nvlnk3", "cluster.inter_node")
    assert "nvlink3" in link_names()


def test_a_device_without_units_for_a_dtype_says_so() -> None:
    with pytest.raises(InputError, match="no matrix units for bf16"):
        peak_flops(device("V100"), "bf16")


@given(st.one_of(st.floats(), st.integers(), st.booleans(), st.text(max_size=12)))
def test_whatever_is_written_a_link_is_sane_or_refused(written: float | str) -> None:
    try:
        found = link(written)
    except InputError:
        return
    assert math.isfinite(found.bytes_per_s.value)
    assert found.bytes_per_s.value > 0


def test_the_catalogue_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules)"
    code = f"import sys; from meshwright.cluster.catalogue import device; device('H100'); print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
