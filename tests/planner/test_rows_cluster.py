"""Clusters of measured rows: printed names of devices and links become the catalogue's."""

from typing import Any

import pytest

from meshwright.basics.errors import InputError
from meshwright.files.rows import Row
from meshwright.planner.rows_cluster import row_cluster


def _row(**values: Any) -> Row:
    return Row(line=1, **{"gpu": "A100-80GB", "gpus": 64, "gpus_per_node": 8, **values})


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("H100-80GB-SXM", "H100-SXM"), ("H100", "H100-SXM"), ("H100 (96 GB HBM2e, 500 W)", "H100-96GB"),
        ("A100-40GB", "A100-40GB-SXM"), ("GB300", "GB300"),
        ("V100-16GB", "V100-16GB-SXM"), ("MI250X (one GCD counted as a GPU, 64 GB)", "MI250X"),
        ("A800-80GB or H800-80GB (not said which)", "A800-80GB-SXM"),
    ],
)  # fmt: skip
def test_devices(printed: str, name: str) -> None:
    assert row_cluster(_row(gpu=printed))[0].device.name == name


def test_a_memory_size_left_open_means_the_larger_card_and_is_said() -> None:
    cluster, assumed = row_cluster(_row(gpu="A100"))
    assert cluster.device.name == "A100-80GB-SXM"
    assert any("memory size not stated" in line for line in assumed)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="unknown device"):
        row_cluster(_row(gpu="Abacus 3000"))


@pytest.mark.parametrize(
    ("printed", "gb_per_s"),
    [
        ("8x HDR200 IB", 25.0),  # 8 · 200 Gb/s / 8 bits / 8 devices
        ("4x OmniPath 100 Gb/s per node", 6.25), ("4x100Gb RoCE per node", 6.25), ("1600 Gbps RoCE per node", 25.0),
        ("800 Gbps per node", 12.5), ("200 Gb/s HDR InfiniBand per GPU", 25.0), ("IB NDR400 (Eos)", 50.0),
        ("100 Gb/s InfiniBand per node", 1.5625), ("EFA (AWS p5)", 50.0), ("Slingshot (Perlmutter)", 25.0),
    ],
)  # fmt: skip
def test_links_between_nodes_are_what_one_device_gets(printed: str, gb_per_s: float) -> None:
    cluster, assumed = row_cluster(_row(inter_node_link=printed))
    assert cluster.inter.bytes_per_s.value == pytest.approx(gb_per_s * 1e9)
    assert not [line for line in assumed if "between nodes" in line]


def test_a_rack_of_72_joins_more_than_its_trays() -> None:
    row = _row(gpu="GB200", gpus=256, gpus_per_node=4, intra_node_link="NVLink5 (NVL72)")
    cluster, _ = row_cluster(row)
    assert (cluster.gpus_per_node, cluster.joined) == (4, 64)  # equal shares of several racks, in whole machines


def test_links_that_nobody_stated_are_said_to_be_assumed() -> None:
    _, assumed = row_cluster(_row(gpu="H100", gpus_per_node=None))
    assert {line.split(":")[0] for line in assumed} >= {"links between nodes", "links inside a node"}
