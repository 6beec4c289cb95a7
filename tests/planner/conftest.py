"""Jobs for the planner's tests."""

from collections.abc import Callable
from typing import Any

import pytest

from meshwright.basics.quantities import GIB
from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.propose import from_count
from meshwright.model.training import Training


def _job(
    arch: Architecture,
    gpu: str = "A100-40GB-SXM",
    gpus: int = 8,
    batch: int = 256,
    seq_len: int = 2048,
    *,
    runner: str = "any",
    a_node: int = 8,
    memory_gib: float | None = None,
    intra: str | float | None = None,
    recipe: dict[str, Any] | None = None,
    **wanted: Any,
) -> Setup:
    device = catalogue.device(gpu)
    link = catalogue.link(intra if intra is not None else device.nvlink or "pcie4")
    memory = device.memory_bytes if memory_gib is None else round(memory_gib * GIB)
    cluster = Cluster(device, gpus, a_node, link, catalogue.link("ib-hdr"), memory)
    proposal = Proposal(arch, cluster, Training(**(recipe or {})), batch, seq_len, Wanted(**wanted))
    return Setup("job", proposal, runnable_by=runner, risk=0.5)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def make_job() -> Callable[..., Setup]:
    """(arch, gpu, gpus, batch, seq_len, **wanted) -> Setup on catalogue devices."""
    return _job


@pytest.fixture(scope="session")
def worked_example() -> Setup:
    """1.2 B parameters on eight 40 GB A100 with NVLink, global batch 256, sequences of 2048, fp16."""
    return _job(from_count(1_200_000_000), recipe={"precision": "fp16"})


@pytest.fixture(scope="session")
def neox_20b() -> Architecture:
    """44 layers, hidden 6144, 64 heads."""
    return Architecture(
        "gpt-neox-20b", "gpt_neox", 44, 6144, 64, 64, 96, 24576, 50432, gated=False, norm="layer",
        parallel_residual=True,
    )  # fmt: skip
