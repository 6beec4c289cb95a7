"""Write a machine.toml: the figures of a device and of links as `cluster/machine_file.py` reads them."""

from collections.abc import Iterable, Mapping
from typing import Any

import tomli_w

from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.cluster.machine_file import FORMAT


def machine_text(device: Device, links: Iterable[Link], note: str) -> str:
    """The file's text, with what was measured or fitted: whatever it does not name keeps the catalogue's figure. `note`
    says when and how: it becomes the source of every figure."""
    row = {
        "kind": device.kind,
        "peak_tflops": _values({dtype: (peak, 1e12) for dtype, peak in device.peak_flops.items()}),
        **_values({"bandwidth_gb": (device.memory_bandwidth, 1e9), "launch_us": (device.launch_s, 1e-6)}),
    }
    rates = {
        link.name: _values({"gb_per_s": (link.bytes_per_s, 1e9), "latency_us": (link.latency_s, 1e-6)})
        for link in links
    }
    tables = {"devices": {device.name: row}, "links": {name: rate for name, rate in rates.items() if rate}}
    return tomli_w.dumps({"format": FORMAT, "note": note, **{name: table for name, table in tables.items() if table}})


def _values(figures: Mapping[str, tuple[Constant, float]]) -> dict[str, Any]:
    """Those that were measured or fitted, each over its unit."""
    return {
        key: {"value": float(f"{figure.value / unit:.5g}"), "origin": figure.origin}
        for key, (figure, unit) in figures.items()
        if figure.origin in ("measured", "fitted")
    }
