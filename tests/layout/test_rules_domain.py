"""An NVLink domain of several nodes is one node to the rules that ask what the fast link reaches."""

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.layout.problem import problem_of
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules_waste import WASTE_RULES
from meshwright.model.catalogue import named
from meshwright.model.training import Training


def _warned(gpus: int, gpu: str, tp: int) -> bool:
    chip = device(gpu)
    cluster = Cluster(chip, gpus, 4, link(chip.nvlink or "pcie4"), link("ib-xdr"), chip.memory_bytes)
    proposal = Proposal(
        arch=named("llama-3-8b"), cluster=cluster, training=Training(), global_batch=64, seq_len=2048,
        wanted=Wanted(tp=tp),
    )  # fmt: skip
    (rule,) = (rule for rule in WASTE_RULES if rule.name == "tensor-across-nodes")
    return not rule.holds(proposal) and bool(problem_of(rule, proposal).message)


def test_tensor_groups_inside_a_rack_of_72_are_no_waste() -> None:
    assert not _warned(64, "GB200", 8)
    assert not _warned(128, "GB200", 8)  # 64 in each of two racks
    assert _warned(64, "H100", 8)  # nodes of four


def test_the_rack_ends_somewhere() -> None:
    assert _warned(256, "GB200", 128)
