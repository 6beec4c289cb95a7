"""What a rate means for a model on its devices: use of the peak, and the bandwidth a slow job implies."""

from dataclasses import dataclass
from pathlib import Path

from meshwright.diagnosis.scaling_points import Point, Series
from meshwright.diagnosis.thresholds import LOW_USE, USUAL_USE
from meshwright.files.findings import Finding
from meshwright.files.setup import Setup
from meshwright.model.flops import step_model_flops
from meshwright.model.parameters import total_parameters

_SOCKET = 2e9
"""Bytes a second of one device between nodes below which the fast network is not in use."""


@dataclass(frozen=True, slots=True)
class Use:
    """`mfu`: model FLOPs over the dense peak; `mfu_6p`: by the rule of thumb, 6 FLOPs a parameter and token."""

    mfu: float
    mfu_6p: float
    flops_6p: float  # a device and second
    peak: float


def use_of(point: Point, setup: Setup) -> Use | None:
    """How much of the devices' dense peak a rate uses. None where the rate is not of tokens or samples."""
    proposal = setup.proposal
    if point.unit not in ("tokens", "samples"):
        return None
    tokens = point.per_device * (proposal.seq_len if point.unit == "samples" else 1)
    precision = proposal.training.precision
    peaks = proposal.cluster.device.peak_flops
    peak = peaks.get(precision) or peaks.get("bf16") or next(iter(peaks.values()))
    exact = step_model_flops(proposal.arch, 1, proposal.seq_len) * tokens
    thumb = 6.0 * total_parameters(proposal.arch) * tokens
    return Use(exact / peak.value, thumb / peak.value, thumb, peak.value)


def low_use(path: Path, series: Series, point: Point, setup: Setup | None, notes: list[str]) -> Finding | None:
    """The finding where the devices are used below 10 % of their peak, or above what is possible."""
    if setup is None:
        return None
    use = use_of(point, setup)
    if use is None:
        notes.append(f"{path.name}: steps a second do not say how much work is done: no use of the peak")
        return None
    if use.mfu > 1:
        return _finding(
            "impossible reading",
            f"{point.devices} devices would use {use.mfu:.0%} of their dense peak: the rate is of the whole job where "
            "one device is meant, or another model, or the peak is the sparse one",
            {"file": str(path), "devices": point.devices, "mfu": use.mfu, "peak_flops": use.peak}, None, None,
            "check the unit of the rate and the job's model and gpu",
        )  # fmt: skip
    if use.mfu >= LOW_USE:
        return None
    evidence: dict[str, object] = {
        "file": str(path), "devices": point.devices, "mfu": use.mfu, "mfu_6p": use.mfu_6p,
        "flops_per_device_6p": use.flops_6p, "usual_mfu": USUAL_USE,
    }  # fmt: skip
    cause = f"{point.devices} devices use {use.mfu_6p:.1%} of their dense peak (6 FLOPs a parameter and token)"
    step_s = _step_s(point, setup)
    cost = None if step_s is None else step_s * (1 - use.mfu / USUAL_USE)
    per_node = setup.proposal.cluster.gpus_per_node
    nodes = -(-point.devices // per_node)
    if step_s is not None and nodes > 1:
        sent = 2 * (nodes - 1) / nodes * 2.0 * total_parameters(setup.proposal.arch) / min(per_node, point.devices)
        low, high = sent / step_s, sent / (step_s * (1 - use.mfu / USUAL_USE))
        evidence |= {
            "step_s": step_s, "bytes_per_device_between_nodes": sent, "implied_bytes_per_s": (low, high),
            "link_bytes_per_s": setup.proposal.cluster.inter.bytes_per_s.value,
        }  # fmt: skip
        cause += (
            f"; if the exchange of gradients between the {nodes} nodes were all that it waits for, each device would "
            f"send at {low / 1e9:.2f}-{high / 1e9:.2f} GB/s"
        )
        if high < _SOCKET:
            cause += ", typical of a fallback to sockets: the fast network is probably not used"
    return _finding(
        "low use of the devices", cause, evidence, cost, 1 - use.mfu / USUAL_USE,
        "before tuning the model: NCCL_DEBUG=INFO says which transport was chosen; run one node alone; run an "
        "all-reduce bandwidth test between two nodes",
    )  # fmt: skip


def _step_s(point: Point, setup: Setup) -> float | None:
    """Seconds a step: measured, else from the job's batch and the rate."""
    if point.step_s is not None:
        return point.step_s
    batch = setup.proposal.global_batch
    work = batch * (setup.proposal.seq_len if point.unit == "tokens" else 1)
    return work / point.rate if point.devices == setup.proposal.cluster.gpus else None


def _finding(
    kind: str, cause: str, evidence: dict[str, object], cost: float | None, share: float | None, verify: str
) -> Finding:
    return Finding(
        kind=kind, ranks=(), stages=(), cause=cause, evidence=evidence, cost_s_per_step=cost, share=share,
        confidence="medium", change={}, predicted_gain=None, verify=verify,
    )  # fmt: skip
