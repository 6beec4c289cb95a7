"""Models, clusters and plans for the predictor's tests."""

from collections.abc import Callable
from typing import Any

import pytest

from meshwright.cluster import catalogue
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.partition import even_stages
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.schedules import default_placement
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training

LLAMA_7B = Architecture("llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)


def _cluster(gpu: str = "A100-80GB-SXM", gpus: int = 8, a_node: int = 8, inter: str | float = "ib-hdr") -> Cluster:
    device = catalogue.device(gpu)
    intra = catalogue.link(device.nvlink or "pcie4")
    return Cluster(device, gpus, a_node, intra, catalogue.link(inter), device.memory_bytes)


def _plan(arch: Architecture, micro_batch: int, micro_batches: int, seq_len: int, **options: Any) -> Plan:
    """A plan with even stages; `options` are fields of Layout, of Training, gpu and runnable_by."""
    recipe = {name: options.pop(name) for name in list(options) if name in Training.__slots__}
    cluster = _cluster(
        options.pop("gpu", "A100-80GB-SXM"), options.pop("gpus", 0) or _world(options), options.pop("a_node", 8)
    )
    runner = options.pop("runnable_by", "any")
    pp, vpp, schedule = options.get("pp", 1), options.get("vpp", 1), options.get("schedule", "1f1b")
    stages = options.pop("stages", None) or even_stages(arch, pp * vpp)
    placement = options.pop("placement", None) or default_placement(schedule, pp, vpp)
    layout = Layout(stages, placement, **options)
    batch = Batch(micro_batch * micro_batches * layout.dp, micro_batch, micro_batches, seq_len)
    proposal = Proposal(arch, cluster, Training(**recipe), batch.global_batch, seq_len, Wanted())
    return Plan(Setup("test", proposal, runnable_by=runner), layout, batch)


def _world(options: dict[str, Any]) -> int:
    return int(options.get("dp", 1) * options.get("tp", 1) * options.get("pp", 1) * options.get("cp", 1))


@pytest.fixture(scope="session")
def llama_7b() -> Architecture:
    """32 layers, hidden 4096, gated feed-forward 11008, vocabulary 32000, untied: 6.738 B parameters."""
    return LLAMA_7B


@pytest.fixture(scope="session")
def make_cluster() -> Callable[..., Cluster]:
    """(gpu, gpus, a_node, inter) -> Cluster with the links of the catalogue."""
    return _cluster


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """(arch, micro_batch, micro_batches, seq_len, **layout and training fields) -> Plan."""
    return _plan
