"""Proposals for the tests of rules, and what is said about them."""

from dataclasses import replace

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.layout.rules import judge
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training

LLAMA = Architecture("m", "llama", 22, 2048, 16, 16, 128, 5632, 32000)
A100 = Cluster(device("A100-40GB-SXM"), 8, 8, link("nvlink3"), link("ib-hdr"), 40 * 2**30)


def propose(
    arch: Architecture = LLAMA, cluster: Cluster = A100, batch: int = 256, seq_len: int = 2048,
    training: Training | None = None, **wanted: object,
) -> Proposal:  # fmt: skip
    return Proposal(arch, cluster, training or Training(), batch, seq_len, Wanted(**wanted))  # type: ignore[arg-type]


def on(gpus: int, **changes: object) -> Cluster:
    return replace(A100, gpus=gpus, **changes)  # type: ignore[arg-type]


def found(proposal: Proposal) -> dict[str, Problem]:
    return {problem.rule: problem for problem in judge(proposal)}


def errors(proposal: Proposal) -> list[str]:
    return [problem.rule for problem in judge(proposal) if problem.severity == "error"]


def warnings(proposal: Proposal) -> list[str]:
    return [problem.rule for problem in judge(proposal) if problem.severity == "warning"]


def text(problem: Problem) -> str:
    return f"{problem.message} | {'; '.join(problem.legal)}"
