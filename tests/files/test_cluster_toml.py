"""A cluster written into plan.toml and read back is equal, whatever it is made of."""

from pathlib import Path

import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.files.cluster_of import cluster_of
from meshwright.files.cluster_toml import unscaled
from meshwright.files.job import Job, parse_job
from meshwright.files.plan_toml import plan_of, read_plan, write_plan

from .complete_job import COMPLETE

REST = COMPLETE[: COMPLETE.index("[cluster]")] + COMPLETE[COMPLETE.index("[batch]") :]
MACHINE = """
[devices.H100-SXM]
peak_tflops = { bf16 = 801.25 }
[devices.NPU-9]
peak_tflops = { bf16 = 300.1 }
bandwidth_gb = 1200.7
memory_gib = 48.3
[links.ib-ndr]
gb_per_s = 46.1
[links.backplane]
gb_per_s = 90.9
"""

GPUS = ("H100", "A100-40GB", "MI300X", "GB200", "L40S")
positive = st.floats(0.01, 5e4).filter(lambda number: number > 0)
wires = st.one_of(st.sampled_from(["ib-hdr", "roce-100", "8x NDR400", "800 Gbps per node", "200 Gb/s"]), positive)
kinds = st.fixed_dictionaries(
    {"gpu": st.sampled_from(GPUS), "gpus": st.integers(1, 64)},
    optional={
        "gpus_per_node": st.integers(1, 16), "memory_gib": positive, "bandwidth_gb": positive,
        "intra_node": st.one_of(st.sampled_from(["nvlink3", "pcie5"]), positive),
        "peak_tflops": st.dictionaries(st.sampled_from(["bf16", "fp8", "fp32"]), st.floats(0.1, 10), min_size=1),
    },
)  # fmt: skip
networks = st.fixed_dictionaries(
    {"inter_node": wires}, optional={"oversubscription": st.floats(1, 900), "rails": st.booleans()}
)


def job(cluster: dict[str, object], path: Path | None = None) -> Job:
    return parse_job(tomli_w.dumps({"cluster": cluster}) + REST, path)


def same_again(table: dict[str, object], written: Job) -> None:
    """Write the cluster of a job through a plan's text, and read it."""
    from meshwright.files.cluster_toml import cluster_table

    found = cluster_of(written)
    origins = {key: (key, origin) for key, origin in written.origins.items()}
    back = cluster_table(found.cluster, origins, found.machine, written.path.parent if written.path else None)
    plain = {key: value for key, value in back.items() if value is not None}
    for group in plain.get("groups", ()):
        for key in [key for key, value in group.items() if value is None]:
            del group[key]
    assert cluster_of(job(plain, written.path)).cluster == found.cluster


@settings(max_examples=60, deadline=None)
@given(kinds, networks, st.one_of(st.none(), st.integers(1, 16)))
def test_clusters_of_one_kind(kind: dict[str, object], network: dict[str, object], nics: int | None) -> None:
    described = str(network["inter_node"])[0] == "8" or "per node" in str(network["inter_node"])
    table = {**kind, **network, **({} if nics is None or described else {"nics_per_node": nics})}
    same_again(table, job(table))


@settings(max_examples=40, deadline=None)
@given(st.lists(kinds, min_size=1, max_size=4), networks)
def test_mixed_clusters(groups: list[dict[str, object]], network: dict[str, object]) -> None:
    table = {"groups": groups, **network}
    same_again(table, job(table))


def test_devices_and_links_of_a_machine_file(tmp_path: Path) -> None:
    (tmp_path / "machine.toml").write_text(MACHINE)
    for table in (
        {"machine": "machine.toml", "gpu": "H100", "gpus": 16, "inter_node": "ib-ndr", "nics_per_node": 4},
        {"machine": "machine.toml", "gpu": "NPU-9", "gpus": 16, "intra_node": "backplane", "inter_node": "backplane"},
        {"machine": "machine.toml", "inter_node": 25,
         "groups": [{"gpu": "NPU-9", "gpus": 8, "intra_node": 50}, {"gpu": "A100", "gpus": 8}]},
        {"machine": "machine.toml", "gpu": "local", "gpus": 2, "memory_gib": 0.5},
    ):  # fmt: skip
        same_again(table, job(table, tmp_path / "job.toml"))


def test_the_machine_files_path_starts_at_the_plans_folder(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "machine.toml").write_text(MACHINE)
    table = {"machine": "machine.toml", "gpu": "NPU-9", "gpus": 4, "intra_node": "backplane"}
    plan = plan_of(job(table, tmp_path / "job.toml"))
    write_plan(plan, tmp_path / "plans" / "plan.toml")
    assert 'machine = "../machine.toml"' in (tmp_path / "plans" / "plan.toml").read_text()
    back = read_plan(tmp_path / "plans" / "plan.toml")
    assert back.setup.proposal.cluster == plan.setup.proposal.cluster
    assert back.setup.machine is not None
    assert back.setup.machine.resolve() == (tmp_path / "machine.toml").resolve()


def test_unlisted_and_local_devices() -> None:
    for table in (
        {"gpu": "MyChip", "gpus": 4, "memory_gib": 33.3, "bandwidth_gb": 777.7, "peak_tflops": {"bf16": 123.4},
         "intra_node": 12.3456789},
        {"gpu": "local", "gpus": 2, "memory_gib": 0.7, "intra_node": 3.3, "bandwidth_gb": 9.9},
        {"gpu": "GB200", "gpus": 64, "nics_per_node": 2},
    ):  # fmt: skip
        same_again(table, job(table))


@given(st.floats(1e-3, 1e6))
def test_a_scaled_number_comes_back_exactly(number: float) -> None:
    for scale in (1e9, 1e12):
        assert unscaled(number * scale, scale) * scale == number * scale
