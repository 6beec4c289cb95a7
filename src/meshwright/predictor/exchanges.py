"""Communication of one micro-batch inside the units (tensor, context, expert) and of one step between replicas."""

from dataclasses import dataclass

from meshwright.basics.quantities import MIB
from meshwright.cluster.topology import Cluster
from meshwright.model.activations import boundary_bytes, value_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.lora import trainable_share
from meshwright.model.states import WEIGHT_BYTES, gradient_bytes
from meshwright.model.training import Training
from meshwright.model.units import Unit
from meshwright.model.variants import variant_of
from meshwright.predictor import groups
from meshwright.predictor.collectives import allgather_s, allreduce_s, alltoall_s, p2p_s, reducescatter_s
from meshwright.predictor.compute import Share, UnitCost
from meshwright.predictor.constants import CONTENTION
from meshwright.predictor.stacks import Stack


@dataclass(frozen=True, slots=True)
class UnitExchange:
    """Seconds that one unit's collectives take in the forward and in the backward of one micro-batch."""

    tp_forward_s: float = 0.0
    tp_backward_s: float = 0.0
    cp_forward_s: float = 0.0
    cp_backward_s: float = 0.0
    ep_forward_s: float = 0.0
    ep_backward_s: float = 0.0

    @property
    def forward_s(self) -> float:
        """All of them in the forward."""
        return self.tp_forward_s + self.cp_forward_s + self.ep_forward_s

    @property
    def backward_s(self) -> float:
        """All of them in the backward, those that recompute repeats included."""
        return self.tp_backward_s + self.cp_backward_s + self.ep_backward_s


def _beside_host(device_s: float, slack_s: float, count: float, ranks: int, stack: Stack) -> float:
    """What `count` collectives of that many device seconds add to a pass whose host works `slack_s`
    longer than its device: they wait for the slowest rank, hide behind the host, and are themselves work for it."""
    device_s += count * stack.skew_us * 1e-6
    if slack_s == float("-inf"):
        return device_s
    hosts = stack.collective_us * 1e-6 * (ranks / 8) ** 2
    return max(device_s, slack_s + count * hosts) - max(0.0, slack_s)


def _tensor(
    arch: Architecture,
    training: Training,
    cluster: Cluster,
    unit: Unit,
    share: Share,
    cost: UnitCost,
    degrees: groups.Degrees,
    stack: Stack,
) -> tuple[float, float]:
    """One all-reduce of the hidden states after each row-split matrix, one of their gradient before each column-split
    one (Shoeybi et al. 2019); with sequence parallelism an all-gather and a reduce-scatter of the same size each, of
    which a stack may run a share beside the products."""
    if share.tp == 1:
        return 0.0, 0.0
    where = groups.tensor_group(cluster, degrees)
    hidden = boundary_bytes(arch, training, share.micro_batch, share.seq_len) / share.cp
    if share.sp:
        once = allgather_s(cluster, hidden, where.size, where.nodes)
        once += reducescatter_s(cluster, hidden, where.size, where.nodes)
        if unit.kind not in ("embed", "head"):
            once *= 1 - stack.tp_overlap * (1 - CONTENTION.value)
    else:
        once = allreduce_s(cluster, hidden, where.size, where.nodes)
    if unit.kind == "embed":
        return once, 0.0
    if unit.kind == "head":  # the loss sums a maximum, a denominator and the target's score, a token each
        return 3 * allreduce_s(cluster, 4.0 * share.tokens, where.size, where.nodes), once
    count, repeats = (2 if share.sp else 1), (2 if share.recompute == "full" else 1)
    forward = _beside_host(once, cost.slack_forward_s, count, share.tp, stack)
    return forward, _beside_host(repeats * once, cost.slack_backward_s, repeats * count, share.tp, stack)


def _context(
    arch: Architecture,
    training: Training,
    cluster: Cluster,
    unit: Unit,
    share: Share,
    cost: UnitCost,
    degrees: groups.Degrees,
) -> tuple[float, float]:
    """Ring attention (Liu et al. 2023): keys and values travel cp - 1 times, hidden behind the unit's compute as far
    as that lasts; the backward moves their gradients as well."""
    if share.cp == 1 or unit.kind not in ("attn", "layer"):
        return 0.0, 0.0
    where = groups.context_group(cluster, degrees)
    width = arch.query_dim + arch.value_dim  # latent attention: restored keys and values travel
    keys = share.tokens * max(arch.kv_heads / share.tp, 1.0) * width * value_bytes(training)
    step = p2p_s(cluster, keys, where.nodes)
    steps = share.cp - 1
    forward = step + max(0.0, (steps - 1) * step - cost.forward_s)
    backward = 2 * step + max(0.0, 2 * (steps - 1) * step - cost.input_backward_s)
    return forward, backward + (forward if share.recompute == "full" else 0.0)


def _expert(
    arch: Architecture,
    training: Training,
    cluster: Cluster,
    unit: Unit,
    share: Share,
    degrees: groups.Degrees,
    stack: Stack,
) -> tuple[float, float]:
    """Two all-to-alls a pass: token copies to their experts, results back. The fullest rank decides: it gets
    `expert_imbalance` times the mean, all tokens at most. A stack may run a share of them beside other work."""
    if share.ep == 1 or not variant_of(arch, unit).experts:
        return 0.0, 0.0
    where = groups.expert_group(cluster, degrees)
    sent = share.tokens * arch.active_experts * arch.hidden * value_bytes(training) / share.tp
    sent *= min(training.expert_imbalance, share.ep)
    once = 2 * alltoall_s(cluster, sent, where.size, where.nodes, arch.active_experts if stack.dedup else 1)
    once *= 1 - stack.ep_overlap * (1 - CONTENTION.value)
    again = share.recompute == "full" or (share.recompute == "selective" and "moe" in stack.recomputes)
    return once, once * (2 if again else 1)


def unit_exchange(
    arch: Architecture,
    training: Training,
    cluster: Cluster,
    unit: Unit,
    share: Share,
    cost: UnitCost,
    degrees: groups.Degrees,
    stack: Stack,
) -> UnitExchange:
    """The collectives of one unit for one micro-batch; `cost` is what they can hide behind."""
    return UnitExchange(
        *_tensor(arch, training, cluster, unit, share, cost, degrees, stack),
        *_context(arch, training, cluster, unit, share, cost, degrees),
        *_expert(arch, training, cluster, unit, share, degrees, stack),
    )


def hop_s(arch: Architecture, training: Training, cluster: Cluster, share: Share, degrees: groups.Degrees) -> float:
    """Seconds to hand one micro-batch's hidden states to the next stage; with sequence parallelism each tensor rank
    sends its own slice."""
    sent = boundary_bytes(arch, training, share.micro_batch, share.seq_len) / share.cp / (share.tp if share.sp else 1)
    return p2p_s(cluster, sent, groups.hop_nodes(cluster, degrees))


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that one rank of a stage holds: dense ones, and those of its experts."""

    dense: float
    expert: float

    @property
    def total(self) -> float:
        """Both."""
        return self.dense + self.expert


@dataclass(frozen=True, slots=True)
class StepExchange:
    """What the replicas exchange for one rank. Seconds.

    `end_s` after the last backward (hidden behind it as far as possible), `after_s` after the optimizer (parameters),
    `forward_s` and `backward_s` beside every micro-batch. `rounds` is how many buckets `end_s` is made of.
    """

    end_s: float = 0.0
    after_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """The groups among which a layout's replicas exchange gradients and parameters."""

    whole: groups.Group  # all that average the gradients of dense tensors
    shards: groups.Group  # those that share one set of ZeRO shards
    replicas: groups.Group  # those that hold the same shard (HSDP)
    expert: groups.Group  # those that hold the same experts


def replica_groups(cluster: Cluster, degrees: groups.Degrees) -> ReplicaGroups:
    """Where a layout's replicas lie."""
    return ReplicaGroups(
        groups.gradient_group(cluster, degrees), groups.shard_group(cluster, degrees),
        groups.replica_group(cluster, degrees), groups.expert_gradient_group(cluster, degrees),
    )  # fmt: skip


def step_exchange(
    arch: Architecture,
    training: Training,
    cluster: Cluster,
    zero: int,
    bucket_mib: float,
    among: ReplicaGroups,
    held: Parameters,
    units: int,
    stages: int = 1,
    stack: Stack | None = None,
) -> StepExchange:
    """The data-parallel exchange of one rank that holds `held` parameters in `units` units. Those of several `stages`
    together: a lower bound of the sum over the stages, however they are cut.

    ZeRO-0: one all-reduce of the gradients. ZeRO-1: a reduce-scatter, and an all-gather of the new parameters. ZeRO-2
    keeps gradients sharded, so each micro-batch reduces them. ZeRO-3 gathers the parameters for each forward and each
    backward as well (Rajbhandari et al. 2020). Buckets cost their latency each. With HSDP shards are summed once more
    over the replicas. The stack decides how well messages fill the links, and what of the gathering of new parameters
    the next forward hides.
    """
    slower = 1 / stack.exchange if stack and zero == 3 else 1.0
    shown = 1 - stack.gather_overlap if stack else 1.0
    linear = stages > 1  # a bound of a sum has to be linear
    trainable = trainable_share(arch, training)
    grads, weights = gradient_bytes(training) * trainable, WEIGHT_BYTES[training.precision]
    parts = [(held.dense, units, among.shards, among.replicas, among.whole)]
    if held.expert:  # of several stages one may hold them all
        parts.append((held.expert, units if stages == 1 else 1, among.expert, groups.Group(1, 1), among.expert))
    end = after = forward = backward = 0.0
    rounds = 1
    for count, messages, shards, replicas, whole in parts:
        if whole.size == 1 or count == 0:
            continue
        by_size = count * grads / (bucket_mib * MIB)
        by_size = round(by_size) if stages == 1 else by_size - stages / 2  # each rounds at most half a bucket away
        buckets = max(1, messages if zero >= 2 else by_size)  # FSDP sends one message a unit
        rounds = max(rounds, int(buckets))
        piece = count * grads / buckets
        if zero == 0:
            end += buckets * allreduce_s(cluster, piece, whole.size, whole.nodes, linear)
            continue
        reduce = buckets * reducescatter_s(cluster, piece, shards.size, shards.nodes, linear)
        gather = buckets * allgather_s(cluster, count * weights / buckets, shards.size, shards.nodes, linear)
        end += buckets * allreduce_s(cluster, piece / shards.size, replicas.size, replicas.nodes, linear)
        if zero == 1:
            end, after = end + reduce, after + shown * gather * trainable
        elif zero == 2:
            backward, after = backward + reduce, after + shown * gather * trainable
        else:
            forward, backward = forward + gather, backward + gather + reduce
    return StepExchange(end * slower, after * slower, forward * slower, backward * slower, rounds)
