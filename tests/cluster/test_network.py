"""Networks as people and published tables describe them; what one device gets of a shared one."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.cluster.catalogue import board_link, device, link
from meshwright.cluster.network import network, one_devices_share

ROWS = Path(__file__).parents[3] / "shared" / "measurements" / "measurements.csv"
TWO_DEVICES = "names two devices, and the table does not say which"
NO_RATE = "names a kind of network and no rate"
UNRESOLVED = {
    "MI325X or MI355X (table does not say which)": TWO_DEVICES,
    "A800-80GB or H800-80GB (not said which)": TWO_DEVICES,
    "RoCE RDMA": NO_RATE,
}


@pytest.mark.parametrize(
    ("written", "name", "adapters"),
    [("8x HDR200 IB", "ib-hdr", 8), ("8x HDR200 IB (DGX SuperPOD)", "ib-hdr", 8), ("IB NDR400 (Eos)", "ib-ndr", None),
     ("4x100Gb RoCE per node", "roce-100", 4), ("4x OmniPath 100 Gb/s per node", "omnipath", 4),
     ("OmniPath (Jean Zay)", "omnipath", None), ("100 Gb/s InfiniBand per node", "ib-edr", 1),
     ("200 Gb/s HDR InfiniBand per GPU", "ib-hdr", None), ("EFA (AWS p5)", "efa", None),
     ("Slingshot-11", "slingshot-11", None), ("800 Gbps per node", "100 GB/s", 1),
     ("1600 Gbps RoCE per node", "200 GB/s", 1), ("ib-xdr", "ib-xdr", None), (25, "25 GB/s", None)],
)  # fmt: skip
def test_descriptions_of_networks(written: str | float, name: str, adapters: int | None) -> None:
    found, count = network(written)
    assert (found.name, count) == (name, adapters)


@pytest.mark.parametrize(
    ("text", "gb"), [("200 Gb/s", 25), ("400Gbps", 50), ("25 GB/s", 25), ("100 Gbit/s", 12.5), ("12.5", 12.5)]
)
def test_bits_are_eighths_of_bytes(text: str, gb: float) -> None:
    assert link(text).bytes_per_s.value == gb * 1e9


def test_a_unit_that_could_be_either_is_refused() -> None:
    with pytest.raises(InputError, match="bits or bytes"):
        link("25 gb/s")


def test_a_kind_without_a_rate_is_told_the_rates() -> None:
    with pytest.raises(InputError, match=r"leaves the rate open \(roce-25 \| roce-50 \| roce-100"):
        network("RoCE RDMA")


@given(st.integers(1, 64), st.integers(1, 128), st.floats(1, 64))
def test_a_share_is_never_more_than_the_link_and_falls_with_oversubscription(node: int, nics: int, over: float) -> None:
    wire = link("ib-ndr")
    rate = one_devices_share(wire, node, nics, over).bytes_per_s.value
    assert 0 < rate <= wire.bytes_per_s.value / over * (1 + 1e-12)
    assert rate * node <= wire.bytes_per_s.value * nics / over * (1 + 1e-12)  # the node's adapters carry it
    assert one_devices_share(wire, node, nics + 1, over).bytes_per_s.value >= rate


@given(st.text(max_size=24))
def test_any_text_is_a_network_or_refused(written: str) -> None:
    try:
        found, adapters = network(written)
    except InputError:
        return
    assert math.isfinite(found.bytes_per_s.value)
    assert adapters is None or adapters > 0


def _rows() -> list[dict[str, str]]:
    if not ROWS.exists():
        pytest.skip(f"no measured rows at {ROWS}")
    with ROWS.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_every_published_device_and_link_resolves_or_has_a_reason_not_to() -> None:
    for row in _rows():
        if row["gpu"] in UNRESOLVED:
            with pytest.raises(InputError):
                device(row["gpu"])
            continue
        found = device(row["gpu"])
        assert found.name.startswith(row["gpu"].split("-")[0].split(" ")[0])
        if row["intra_node_link"]:
            assert board_link(found, row["intra_node_link"]).bytes_per_s.value >= 100e9
        if row["inter_node_link"] and row["inter_node_link"] not in UNRESOLVED:
            assert network(row["inter_node_link"])[0].bytes_per_s.value >= 10e9
