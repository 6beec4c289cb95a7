"""What a user proposes: any part of a layout, possibly contradictory, with where each value came from.

The rules judge proposals; the planner fills their gaps; a complete and legal one becomes a `Layout` and a `Batch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from meshwright.basics.figures import ValueOrigin
from meshwright.cluster.topology import Cluster
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Exchange, Layout, Offload, Recompute, Schedule
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts of a layout that are fixed; None means free. Names and meanings as in `Layout` and `Batch`."""

    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    vpp: int | None = None
    sp: bool | None = None
    zero: int | None = None
    shard_group: int | None = None
    schedule: Schedule | None = None
    recompute: Recompute | None = None
    recompute_layers: int | None = None
    bucket_mib: float | None = None
    overlap: bool | None = None
    gradient_exchange: Exchange | None = None
    offload: Offload | None = None
    vocab_parallel: bool | None = None
    loss_chunk: int | None = None
    vocab_multiple: int | None = None
    stages: tuple[tuple[str, ...], ...] | None = None
    placement: tuple[int, ...] | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A model on a cluster with a batch, and the fixed parts of a layout.

    `written` maps a field ("layout.tp") to the file's own spelling and the origin of its value, for messages.
    """

    arch: Architecture
    cluster: Cluster
    training: Training
    global_batch: int
    seq_len: int
    wanted: Wanted
    written: Mapping[str, tuple[str, ValueOrigin]] = field(default_factory=dict)
    claims: Mapping[str, str] = field(
        default_factory=dict
    )  # what the job states as fact (table [claims]): rules examine it


def proposal_of(proposal: Proposal, layout: Layout, batch: Batch) -> Proposal:
    """The proposal with every free part filled from a complete layout."""
    names = [name for name in Wanted.__slots__ if name not in ("micro_batch", "micro_batches")]
    values = {name: getattr(layout, name) for name in names}
    wanted = Wanted(**values, micro_batch=batch.micro_batch, micro_batches=batch.micro_batches)
    return replace(proposal, wanted=wanted)
