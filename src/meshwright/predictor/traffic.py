"""What one step sends: bytes by communication group, of the mean device, and between nodes.

Counted from the collectives themselves, without a clock: of n bytes over g ranks a reduce-scatter or an all-gather
sends n (g - 1) / g from each, an all-reduce twice that, an all-to-all n (g - 1) / g (Thakur et al. 2005).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.model.activations import boundary_bytes, value_bytes
from meshwright.model.lora import trainable_share
from meshwright.model.states import WEIGHT_BYTES, gradient_bytes
from meshwright.model.units import units_of
from meshwright.model.variants import variant_of
from meshwright.predictor import groups
from meshwright.predictor.compute import share_of
from meshwright.predictor.table import Figure, layout_table


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one step. `sent[g]`: what the mean device sends in group g (dp, tp, cp, ep, pp; those with none left
    out). `between_nodes`: what all devices of one node together send to other nodes."""

    sent: Mapping[str, float]
    between_nodes: float


def _ring(size: int) -> float:
    return (size - 1) / size


def traffic_of(setup: Setup, layout: Layout, batch: Batch) -> Traffic:
    """The traffic of a layout."""
    cluster, a_node = setup.proposal.cluster, setup.proposal.cluster.joined
    sent: dict[str, float] = {}
    outside = 0.0
    for name, part, group in _parts(setup, layout, batch):
        if part <= 0:
            continue
        sent[name] = sent.get(name, 0.0) + part
        if group.nodes > 1:  # a ring through all nodes leaves each once for every group that lies there
            members = max(1, -(-group.size // group.nodes))
            rings = max(1.0, min(a_node, cluster.gpus) / members)
            outside += part * rings if name != "ep" else part * members * rings * _ring(group.nodes) / _ring(group.size)
    return Traffic(sent, outside)


def _parts(setup: Setup, layout: Layout, batch: Batch) -> list[tuple[str, float, groups.Group]]:
    """(group's name, bytes that the mean device sends in a step, the group)."""
    proposal, share = setup.proposal, share_of(layout, batch)
    arch, training, cluster = proposal.arch, proposal.training, proposal.cluster
    m, again = batch.micro_batches, layout.recompute == "full"
    found = _replicas(setup, layout, batch)
    hidden = boundary_bytes(arch, training, share.micro_batch, share.seq_len) / share.cp
    kinds = [unit.kind for unit in units_of(arch)]
    inside = sum(kind in ("attn", "ffn", "layer") for kind in kinds)
    if layout.tp > 1:  # an all-reduce, or with sequence parallelism its two halves
        times = inside * (3 if again else 2) + 2
        group = groups.tensor_group(cluster, layout)
        found.append(("tp", m * times * 2 * hidden * _ring(layout.tp) / layout.pp, group))
    if layout.cp > 1:
        width = arch.query_dim + arch.value_dim
        keys = share.tokens * max(arch.kv_heads / share.tp, 1.0) * width * value_bytes(training)
        passes = sum(kind in ("attn", "layer") for kind in kinds) * (4 if again else 3)
        found.append(("cp", m * passes * (layout.cp - 1) * keys / layout.pp, groups.context_group(cluster, layout)))
    if layout.ep > 1:
        experts = sum(bool(variant_of(arch, unit).experts) for unit in units_of(arch))
        tokens = share.tokens * arch.active_experts * arch.hidden * value_bytes(training) / share.tp
        times = 2 * experts * (3 if again else 2)
        group = groups.expert_group(cluster, layout)
        found.append(("ep", m * times * tokens * _ring(layout.ep) / layout.pp, group))
    if layout.pp > 1:
        crossings = sum(a != b for a, b in pairwise(layout.placement))
        each = hidden / (share.tp if share.sp else 1)
        nodes = groups.hop_nodes(cluster, layout)
        found.append(("pp", m * 2 * crossings * each / layout.pp, groups.Group(2, nodes)))
    return found


def _replicas(setup: Setup, layout: Layout, batch: Batch) -> list[tuple[str, float, groups.Group]]:
    """The gradient exchange and the gathering of parameters, as ZeRO has them (Rajbhandari et al. 2020)."""
    proposal, cluster = setup.proposal, setup.proposal.cluster
    trainable = trainable_share(proposal.arch, proposal.training)
    gradient, weight = gradient_bytes(proposal.training) * trainable, WEIGHT_BYTES[proposal.training.precision]
    figures = layout_table(setup, layout, batch).figures
    parts = [
        (float(figures[:, Figure.DENSE].sum()) / layout.pp, groups.gradient_group(cluster, layout),
         groups.shard_group(cluster, layout), groups.replica_group(cluster, layout)),
        (float(figures[:, Figure.EXPERT].sum()) / layout.pp, groups.expert_gradient_group(cluster, layout),
         groups.expert_gradient_group(cluster, layout), groups.Group(1, 1)),
    ]  # fmt: skip
    m = batch.micro_batches if layout.exchange == "micro-batch" else 1
    found: list[tuple[str, float, groups.Group]] = []
    for count, whole, shards, replicas in parts:
        if not count or whole.size == 1:
            continue
        if layout.zero == 0:
            found.append(("dp", m * 2 * count * gradient * _ring(whole.size), whole))
            continue
        gathers = 2 * batch.micro_batches if layout.zero == 3 else trainable
        moved = m * count * gradient + gathers * count * weight
        found.append(("dp", moved * _ring(shards.size), shards))
        found.append(("dp", 2 * count * gradient / shards.size * _ring(replicas.size), replicas))
    return found
