"""Plans for the trainer's tests, written as values."""

from dataclasses import replace
from typing import Any

from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import units_of

TINY = Architecture(
    name="tiny", family="llama", layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn_hidden=176, vocab=256
)
_LINK = Link("loopback", Constant(1e9, "guessed"), Constant(1e-5, "guessed"))
_PEAKS = dict.fromkeys(("fp32", "bf16", "fp16"), Constant(1e10, "guessed"))
_CORE = Device(
    "core", "cpu", 2**30, _PEAKS, Constant(1e10, "guessed"), Constant(1e-6, "guessed"), Constant(0, "guessed")
)


def cut(arch: Architecture, *sizes: int) -> tuple[tuple[str, ...], ...]:
    """Stages of so many units each."""
    names = [unit.name for unit in units_of(arch)]
    assert sum(sizes) == len(names)
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return tuple(tuple(names[end - size : end]) for size, end in zip(sizes, ends, strict=True))


def plan(
    name: str = "tiny", arch: Architecture = TINY, stages: tuple[tuple[str, ...], ...] | None = None,
    placement: tuple[int, ...] | None = None, micro_batch: int = 4, global_batch: int = 16, seq_len: int = 32,
    training: dict[str, Any] | None = None, **layout: Any,
) -> Plan:  # fmt: skip
    """A complete plan; the rest of the keywords are the layout's."""
    stages = stages or (tuple(unit.name for unit in units_of(arch)),)
    placement = placement or tuple(range(len(stages)))
    whole = Layout(stages=stages, placement=placement, **layout)
    cluster = Cluster(_CORE, whole.world, whole.world, _LINK, _LINK, 2**30, local=True)
    recipe = Training(**{"precision": "fp32", "lr": 3e-3, "warmup": 2, **(training or {})})
    proposal = Proposal(arch, cluster, recipe, global_batch, seq_len, Wanted())
    batch = Batch(global_batch, micro_batch, global_batch // micro_batch // whole.dp, seq_len)
    return Plan(Setup(name, proposal), whole, batch)


def variant(**changes: Any) -> Architecture:
    """The tiny model with some values changed."""
    return replace(TINY, **changes)
