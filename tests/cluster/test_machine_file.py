"""machine.toml: measured figures over the catalogue's, devices and links it lacks, and everything wrong at once."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import GIB
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.machine_file import MachineFile, machine_of
from meshwright.cluster.measured import applied, device_in, intra_in, link_in, network_in

TEXT = """
format = 1
note = "8 ranks, 4 repeats"
[devices.H100-SXM]
peak_tflops = { bf16 = { value = 794.5, spread = 0.02 }, fp8 = 1510 }
launch_us = { value = 3.9, origin = "fitted", source = "three traces" }
memory_gib = 79.1
reserved_gib = 0
[devices.NPU-9]
peak_tflops = { bf16 = 300 }
bandwidth_gb = 1200
memory_gib = 48
[links.ib-ndr]
gb_per_s = { value = 46.1, spread = 0.05 }
[links.backplane]
gb_per_s = 90
latency_us = 3
[coefficients]
intra_efficiency = { value = 0.81, spread = 0.1 }
skew = -0.5
"""


def read(text: str) -> MachineFile:
    return machine_of(tomllib.loads(text), "folder/machine.toml")


def complaints(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return [str(complaint).removeprefix("folder/machine.toml: ") for complaint in caught.value.complaints]


def test_measured_figures_stand_over_the_catalogues() -> None:
    found = device_in(read(TEXT), "H100")
    assert found.peak_flops["bf16"].value == 794.5e12
    assert found.peak_flops["bf16"].origin == "measured"
    assert found.peak_flops["bf16"].source == "machine.toml: 8 ranks, 4 repeats"
    assert found.peak_flops["fp16"] == device("H100").peak_flops["fp16"]
    assert found.memory_bandwidth == device("H100").memory_bandwidth
    assert found.launch_s.value == pytest.approx(3.9e-6)
    assert (found.launch_s.origin, found.launch_s.source) == ("fitted", "three traces")
    assert found.memory_bytes == round(79.1 * GIB)
    assert found.reserved_bytes.value == 0
    assert (found.nvlink, found.watts) == ("nvlink4", 700)


def test_spreads_and_coefficients_are_kept() -> None:
    machine = read(TEXT)
    assert machine.spreads == {
        "devices.H100-SXM.peak_tflops.bf16": 0.02, "links.ib-ndr.gb_per_s": 0.05, "coefficients.intra_efficiency": 0.1,
    }  # fmt: skip
    assert machine.coefficients["intra_efficiency"].value == 0.81
    assert machine.coefficients["skew"].value == -0.5


def test_new_devices_and_links_are_described_by_the_file() -> None:
    machine = read(TEXT)
    found = device_in(machine, "NPU-9")
    assert (found.name, found.kind, found.memory_bytes) == ("NPU-9", "gpu", 48 * GIB)
    assert intra_in(machine, found, "backplane", "cluster.intra_node").bytes_per_s.value == 90e9
    assert network_in(machine, "backplane", "cluster.inter_node")[0].latency_s.value == pytest.approx(3e-6)
    assert network_in(machine, "8x NDR400", "cluster.inter_node")[0].bytes_per_s.value == pytest.approx(46.1e9)
    assert link_in(machine, link("ib-hdr")) == link("ib-hdr")
    with pytest.raises(InputError, match="unknown device"):
        device_in(machine, "NPU-10")


def test_the_files_only_device_of_a_kind_can_be_meant_by_any_name() -> None:
    only = read('[devices."a core"]\nkind = "cpu"\nbandwidth_gb = 7')
    worker = applied(read(""), device("H100"))
    assert worker == device("H100")
    assert applied(only, device("H100"), sole=True) == device("H100")  # of another kind


def test_a_sparse_peak_is_refused_here_too() -> None:
    (said,) = complaints("[devices.H100]\npeak_tflops = {bf16 = 1979}")
    assert said.startswith("devices.H100.peak_tflops.bf16 = 1979: is twice the dense peak of H100-SXM")


def test_everything_wrong_is_said_at_once_with_the_nearest_key() -> None:
    said = complaints("""
format = 2
note = 5
devises = 1
[devices.H100]
bandwith_gb = 3
kind = "tpu"
peak_tflops = { bf61 = 1 }
[devices.New]
memory_gib = 8
[links.ib-hdr]
gb_per_s = { value = true, orgin = "measured" }
latency_us = { origin = "hearsay", value = 3 }
[links.new]
latency_us = 3
[coefficients]
a = "fast"
""")
    assert {text.split(":")[0].split(" = ")[0] for text in said} == {
        "format", "note", "devises", "devices.H100.bandwith_gb", "devices.H100.kind",
        "devices.H100.peak_tflops.bf61", "devices.New.peak_tflops", "devices.New.bandwidth_gb",
        "links.ib-hdr.gb_per_s.orgin", "links.ib-hdr.gb_per_s.value", "links.ib-hdr.latency_us.origin",
        "links.new.gb_per_s", "coefficients.a",
    }  # fmt: skip
    whole = "\n".join(said)
    assert "did you mean devices.H100.bandwidth_gb?" in whole
    assert "did you mean links.ib-hdr.gb_per_s.origin?" in whole
    assert "measured | fitted | data sheet | guessed" in whole


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e18", "true", '"8"', "[]", "{}", "{value = nan}"])
@pytest.mark.parametrize("key", ["memory_gib", "bandwidth_gb", "peak_tflops.bf16"])
def test_figures_out_of_range_are_refused_by_name(key: str, value: str) -> None:
    (said,) = complaints(f"[devices.H100]\n{key} = {value}")
    assert said.startswith(f"devices.H100.{key}")


Anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["H100", "bf16", "value", "spread", "gb_per_s", "memory_gib", "x"]), inner),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["format", "note", "devices", "links", "coefficients", "other"]), Anything))
def test_whatever_stands_in_the_file_it_is_read_or_refused(data: dict[str, object]) -> None:
    try:
        found = machine_of(data, "machine.toml")
    except InputError:
        return
    assert set(found.devices) <= {"H100", "bf16", "value", "spread", "gb_per_s", "memory_gib", "x"}
