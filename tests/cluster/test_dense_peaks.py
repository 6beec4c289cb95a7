"""Dense peaks as makers print them, typed here from their data sheets, so that no sparse figure slips in."""

import pytest

from meshwright.cluster.catalogue import device, device_names, link

# TFLOP/s. NVIDIA prints figures with sparsity from A100 on; the dense ones are half of them.
DENSE: dict[str, dict[str, float]] = {
    "V100-16GB-SXM": {"fp32": 15.7, "fp16": 125},
    "V100-32GB-SXM": {"fp32": 15.7, "fp16": 125},
    "V100-16GB-PCIe": {"fp32": 14, "fp16": 112},
    "V100-32GB-PCIe": {"fp32": 14, "fp16": 112},
    "A100-40GB-SXM": {"fp32": 19.5, "tf32": 312 / 2, "fp16": 624 / 2, "bf16": 624 / 2},
    "A100-80GB-SXM": {"fp32": 19.5, "tf32": 312 / 2, "fp16": 624 / 2, "bf16": 624 / 2},
    "A100-40GB-PCIe": {"fp32": 19.5, "tf32": 312 / 2, "fp16": 624 / 2, "bf16": 624 / 2},
    "A100-80GB-PCIe": {"fp32": 19.5, "tf32": 312 / 2, "fp16": 624 / 2, "bf16": 624 / 2},
    "A800-80GB-SXM": {"fp32": 19.5, "tf32": 312 / 2, "bf16": 624 / 2},
    "H100-SXM": {"fp32": 67, "tf32": 989 / 2, "fp16": 1979 / 2, "bf16": 1979 / 2, "fp8": 3958 / 2},
    "H100-96GB": {"bf16": 1979 / 2, "fp8": 3958 / 2},
    "H100-PCIe": {"fp32": 51, "tf32": 756 / 2, "bf16": 1513 / 2, "fp8": 3026 / 2},
    "H100-NVL": {"fp32": 60, "tf32": 835 / 2, "bf16": 1671 / 2, "fp8": 3341 / 2},
    "H800-SXM": {"bf16": 1979 / 2, "fp8": 3958 / 2},
    "H800-PCIe": {"bf16": 1513 / 2, "fp8": 3026 / 2},
    "H20": {"fp32": 44, "tf32": 74, "bf16": 148, "fp8": 296},
    "H200-SXM": {"fp32": 67, "tf32": 989 / 2, "bf16": 1979 / 2, "fp8": 3958 / 2},
    "H200-NVL": {"fp32": 60, "bf16": 1671 / 2, "fp8": 3341 / 2},
    "GH200": {"fp32": 67, "tf32": 989 / 2, "bf16": 1979 / 2, "fp8": 3958 / 2},
    "B200-SXM": {"fp32": 600 / 8, "tf32": 18e3 / 16, "bf16": 36e3 / 16, "fp8": 72e3 / 16, "nvfp4": 144e3 / 16},
    "B300-SXM": {"fp32": 600 / 8, "tf32": 18e3 / 16, "bf16": 36e3 / 16, "fp8": 72e3 / 16, "nvfp4": 108e3 / 8},
    "GB200": {"fp32": 5760 / 72, "tf32": 180e3 / 144, "bf16": 360e3 / 144, "fp8": 720e3 / 144, "nvfp4": 1440e3 / 144},
    "GB300": {"fp32": 6e3 / 72, "tf32": 180e3 / 144, "bf16": 360e3 / 144, "fp8": 720e3 / 144, "nvfp4": 1080e3 / 72},
    "L40S": {"fp32": 91.6, "tf32": 366 / 2, "bf16": 362.05, "fp8": 1466 / 2},  # printed both ways, not quite half
    "RTX-4090": {"fp32": 82.6, "bf16": 330.4 / 2, "fp8": 660.6 / 2},
    "RTX-3090": {"fp32": 35.6, "bf16": 142 / 2},
    "MI250X": {"fp32": 95.7 / 2, "fp16": 383 / 2, "bf16": 383 / 2},
    "MI300X": {"fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9},
    "MI325X": {"fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9},
    "MI355X": {"fp32": 157.3, "fp16": 2516.6, "bf16": 2516.6, "fp8": 5033, "mxfp4": 10066},
}

# GB/s of memory, watts of the board.
BOARDS = {
    "V100-32GB-SXM": (900, 300), "A100-40GB-SXM": (1555, 400), "A100-80GB-SXM": (2039, 400),
    "A100-40GB-PCIe": (1555, 250), "A100-80GB-PCIe": (1935, 300), "H100-SXM": (3350, 700), "H100-PCIe": (2000, 350),
    "H100-NVL": (3900, 400), "H100-96GB": (2400, 500), "H200-SXM": (4800, 700), "B200-SXM": (8000, 1000),
    "GB200": (8000, 1200), "GB300": (8000, 1400), "L40S": (864, 350), "RTX-4090": (1008, 450),
    "RTX-3090": (936, 350), "MI300X": (5300, 750), "MI325X": (6000, 1000), "MI355X": (8000, 1400),
}  # fmt: skip

# GB as sold; what PyTorch can see is up to a tenth less, never more than that many GiB.
SOLD_GB = {
    "V100-16GB-SXM": 16, "V100-32GB-SXM": 32, "A100-40GB-SXM": 40, "A100-80GB-SXM": 80, "H100-SXM": 80,
    "H100-96GB": 96, "H100-NVL": 94, "H200-SXM": 141, "B200-SXM": 180, "B300-SXM": 288, "GB200": 186,
    "GB300": 288, "L40S": 48, "RTX-4090": 24, "RTX-3090": 24, "MI250X": 64, "MI300X": 192, "MI325X": 256,
    "MI355X": 288, "GH200": 96,
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_peaks_are_the_dense_figures_of_the_data_sheet(name: str) -> None:
    peaks = device(name).peak_flops
    for dtype, tflops in DENSE[name].items():
        assert peaks[dtype].value / 1e12 == pytest.approx(tflops, rel=0.006), dtype


@pytest.mark.parametrize("name", device_names())
def test_ratios_between_dtypes_are_those_of_dense_units(name: str) -> None:
    peaks = {dtype: constant.value for dtype, constant in device(name).peak_flops.items()}
    half = peaks["fp16"]
    assert peaks.get("bf16", half) == half
    assert peaks.get("fp8", 2 * half) == pytest.approx(2 * half, rel=0.02)
    assert peaks.get("mxfp8", 2 * half) == pytest.approx(2 * half, rel=0.02)
    assert peaks.get("nvfp4", 4 * half) in (pytest.approx(4 * half, rel=0.02), pytest.approx(6 * half, rel=0.02))
    assert peaks.get("tf32", half / 2) == pytest.approx(half / 2, rel=0.02)
    assert peaks["fp32"] < half


@pytest.mark.parametrize("name", BOARDS)
def test_memory_bandwidth_and_power_of_the_board(name: str) -> None:
    found = device(name)
    assert (found.memory_bandwidth.value / 1e9, found.watts) == BOARDS[name]


@pytest.mark.parametrize("name", SOLD_GB)
def test_memory_is_what_software_sees_of_what_is_sold(name: str) -> None:
    gib = device(name).memory_bytes / 2**30
    assert 0.9 * SOLD_GB[name] < gib <= SOLD_GB[name]


@pytest.mark.parametrize("name", device_names())
def test_sources_name_a_document(name: str) -> None:
    found = device(name)
    for figure in (*found.peak_flops.values(), found.memory_bandwidth):
        assert figure.origin == "data sheet"
        assert "https://" in figure.source or "arXiv:" in figure.source


# GB/s of one direction: half of what makers print for both.
NVLINK = {"V100": 300, "A100": 600, "A800": 400, "H100": 900, "H800": 400, "H200": 900, "B200": 1800, "GB300": 1800}


@pytest.mark.parametrize("name", NVLINK)
def test_nvlink_is_half_of_what_is_printed_for_both_directions(name: str) -> None:
    board = device(name).nvlink
    assert board is not None
    assert link(board).bytes_per_s.value == NVLINK[name] / 2 * 1e9
