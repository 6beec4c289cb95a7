"""Proton trees: a hot list with rates against the device's limits, and no claim about time lines."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import answers_or_says

from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.traces.proton import read_proton

REAL = Path(__file__).resolve().parents[3] / "shared" / "traces" / "proton"


@pytest.mark.skipif(not REAL.is_dir(), reason="no folder of public traces (../shared/traces)")
def test_the_published_trees() -> None:
    found = diagnose_inputs([REAL])
    assert found.ranks == ()
    assert any("no timeline" in note for note in found.abstained)
    hot = found.tables[str(REAL / "cuda.json")]["hot"]  # type: ignore[index]
    assert [row["scope"] for row in hot] == ["foo1", "foo0"] or [row["scope"] for row in hot] == ["foo0", "foo1"]
    by_name = {row["scope"]: row for row in hot}
    # 1e11 FLOPs of 8 bits and 1e8 bytes in 204.8 µs, on a bus of 6144 bits at 2 × 2.619 GHz
    assert by_name["foo0"]["flops_per_s"] == pytest.approx(1e11 / 204.8e-6)
    assert by_name["foo0"]["bytes_per_s"] == pytest.approx(1e8 / 204.8e-6)
    assert by_name["foo0"]["share_of_memory_limit"] == pytest.approx((1e8 / 204.8e-6) / (2 * 2.619e9 * 6144 / 8))
    assert by_name["foo0"]["calls"] == 10


def _node(name: str, metrics: dict[str, Any], *children: Any) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def test_work_on_the_parent_of_the_timed_kernel_and_the_profilers_own(tmp_path: Path) -> None:
    kernel = _node("kernel", {"time (ns)": 1000, "count": 2, "device_id": "0", "device_type": "CUDA"})
    own = _node("__proton_launch_metadata", {}, _node("x", {"time (ns)": 5e9}))
    file = tmp_path / "p.hatchet"
    file.write_text(json.dumps([_node("ROOT", {}, _node("scope", {"flops16": 4e6, "bytes": 8e3}, kernel), own)]))
    tree = read_proton(file)
    (scope,) = tree.scopes
    assert (scope.path, scope.flops, scope.bytes, scope.width) == (("scope", "kernel"), 4e6, 8e3, 16)
    assert "profiler's own work" in tree.notes[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["frame", "metrics", "children", "name", "time (ns)", "count", "flops8"]), inner
        )
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_any_json(tmp_path: Path, value: object) -> None:
    file = tmp_path / "any.json"
    file.write_text(json.dumps([_node("ROOT", {"time (ns)": 1}, value), value]))
    answers_or_says(lambda: read_proton(file))
