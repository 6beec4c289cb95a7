"""A machine file that is written reads back as the figures that were written."""

import tomllib
from dataclasses import replace

from meshwright.basics.figures import Constant
from meshwright.cluster.catalogue import device, link
from meshwright.cluster.machine_file import machine_of
from meshwright.cluster.measured import applied, link_in
from meshwright.files.machine_toml import machine_text


def test_figures_survive_and_the_rest_is_left_to_the_catalogue() -> None:
    listed = device("A100-80GB-SXM")
    found = replace(listed, peak_flops={**listed.peak_flops, "bf16": Constant(2.5e14, "fitted")})
    found = replace(found, memory_bandwidth=Constant(1.5e12, "measured"))
    slow = replace(link("25 GB/s"), bytes_per_s=Constant(1.9e10, "fitted"))
    machine = machine_of(tomllib.loads(machine_text(found, [slow, link("nvlink3")], "a note")), "machine.toml")
    read = applied(machine, listed)
    assert read.peak_flops["bf16"] == Constant(2.5e14, "fitted", "machine.toml: a note")
    assert read.memory_bandwidth == Constant(1.5e12, "measured", "machine.toml: a note")
    assert read.peak_flops["fp32"] == listed.peak_flops["fp32"]
    assert read.launch_s == listed.launch_s
    assert link_in(machine, link("25 GB/s")).bytes_per_s.value == 1.9e10
    assert link_in(machine, link("nvlink3")) == link("nvlink3")
