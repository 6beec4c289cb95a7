"""Communication of a traced job that costs more than it must: repeated, not overlapped, or over one slow link."""

import numpy as np

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.traced import Traced, is_transfer
from meshwright.files.findings import Finding
from meshwright.layout.thresholds import WORTH
from meshwright.timeline.columns import Kind
from meshwright.timeline.intervals import subtract, total, union

EXPOSED = 0.85
"""Gradient exchange of which this share is not covered by compute is not overlapped."""

SLOW_LINK = 1.5
"""A group whose transfers take this many times as long as those of like groups has a slow link."""

_SMALL = 64 << 10  # bytes: below it a collective carries no gradients


def gradient_collectives(job: Traced) -> list[int]:
    """Matched collectives that exchange gradients: of groups that the traces call data-parallel, else all-reduces
    and reduce-scatters of groups that are used with more than one size (activations come in one), and are not small.
    """
    sizes: dict[tuple[int, ...], set[int]] = {}
    c = job.collectives
    for k in range(len(c)):
        if c.size[k] >= _SMALL:
            sizes.setdefault(c.group[k], set()).add(int(c.size[k]))
    out = []
    for k in range(len(c)):
        use, name = job.uses.get(c.group[k], "").lower(), c.name[k].lower().replace("_", "")
        if "reduce" not in name or is_transfer(c, k) or 0 <= c.size[k] < _SMALL:
            continue
        data = any(word in use for word in ("dp", "data", "fsdp", "ddp", "replicate"))
        other = any(word in use for word in ("tp", "tensor", "cp", "context", "ep", "expert", "pp", "pipe"))
        if data or (not other and len(sizes.get(c.group[k], ())) > 1):
            out.append(k)
    return out


def find_repeated_exchange(job: Traced) -> Finding | None:
    """All-reduces of the same sizes in the same order several times a step: gradients of every micro-batch."""
    c = job.collectives
    chosen = [k for k in gradient_collectives(job) if "allreduce" in c.name[k].lower().replace("_", "")]
    repeats: list[tuple[int, int]] = []
    by_rank = {rank: np.flatnonzero((c.rank == rank) & np.isin(c.which, chosen)) for rank in np.unique(c.rank).tolist()}
    for entries in by_rank.values():
        for window in job.windows:
            own = entries[c.step[entries] == window.step]
            own = own[np.argsort(c.start[own], kind="stable")]
            order = [(c.group[k], int(c.size[k])) for k in c.which[own].tolist()]
            repeats.append(_period(order))
    times, buckets = max(set(repeats), key=repeats.count) if repeats else (1, 0)
    if times < 2:
        return None
    exposed, _ = exposed_transfer(job, chosen)
    avoidable = (times - 1) / times
    cost = avoidable * exposed
    share = cost / job.step_s
    return Finding(
        kind="gradients exchanged every micro-batch",
        ranks=tuple(rank for rank, entries in by_rank.items() if len(entries)),
        stages=(),
        cause=(
            f"{times * buckets} gradient all-reduces a step where {buckets} would do: the same {buckets} are exchanged "
            f"{times} times, once for every micro-batch; {avoidable:.0%} of the volume is avoidable"
        ),
        evidence={"collectives_per_step": times * buckets, "buckets": buckets, "times": times,
                  "avoidable_share": avoidable, "exposed_s": exposed},
        cost_s_per_step=cost,
        share=share,
        confidence="high" if not c.inferred else "medium",
        change={},
        predicted_gain=(0.5 * share, share, min(1.0, 1.5 * share)),
        verify="accumulate without exchange (no_sync in DDP) up to the last micro-batch and compare the step time",
    )  # fmt: skip


def _period(order: list[tuple[tuple[int, ...], int]]) -> tuple[int, int]:
    """(times, length) of the shortest pattern of two or more sizes that the sequence repeats; (1, length) if none."""
    n = len(order)
    for length in range(2, n // 2 + 1):
        pattern = order[:length]
        if n % length == 0 and len({size for _, size in pattern}) > 1 and order == pattern * (n // length):
            return n // length, length
    return 1, n


def exposed_transfer(job: Traced, chosen: list[int]) -> tuple[float, float]:
    """Seconds a step, mean over ranks, of those collectives' transfers: not covered by compute, and in all.

    A transfer is the end of each member's part: what it waited before does not count against the overlap.
    """
    c = job.collectives
    exposed = whole = 0
    ranks = np.unique(c.rank[np.isin(c.which, chosen)]).tolist()
    line = job.timeline
    for rank in ranks:
        entries = np.flatnonzero((c.rank == rank) & np.isin(c.which, chosen))
        spans = union(c.end[entries] - c.transfer[c.which[entries]], c.end[entries])
        busy = (line.rank == rank) & np.isin(line.kind, (Kind.COMPUTE, Kind.UNCLASSIFIED))
        left = subtract(spans, (line.start[busy], line.end[busy]))
        exposed += total(*left)
        whole += total(*spans)
    scale = 1e9 * line.time_scale * max(1, len(ranks)) * len(job.windows)
    return exposed / scale, whole / scale


def find_missing_overlap(job: Traced) -> Finding | None:
    """Gradient exchange that is exposed as a whole although the step computes long enough to hide it."""
    chosen = gradient_collectives(job)
    exposed, whole = exposed_transfer(job, chosen)
    share = exposed / job.step_s
    compute = float(np.median(job.compute_s))
    if not chosen or exposed < EXPOSED * whole or share < WORTH or compute < 0.2 * whole:
        return None
    members = {rank for k in chosen for rank in job.collectives.group[k]}
    hidden = min(exposed, 0.6 * compute)
    gain = hidden / job.step_s
    return Finding(
        kind="communication not overlapped",
        ranks=tuple(sorted(members & set(job.timeline.recorded))),
        stages=(),
        cause=(
            f"{exposed / whole:.0%} of the gradient exchange is exposed ({seconds_text(exposed)} of "
            f"{seconds_text(whole)} a step): it runs only when computing has ended"
        ),
        evidence={"exposed_s": exposed, "transfer_s": whole, "compute_s": compute},
        cost_s_per_step=exposed,
        share=share,
        confidence="medium",
        change={"layout.overlap": True},
        predicted_gain=(0.25 * gain, 0.8 * gain, gain),
        verify=(
            "switch on the overlap of gradient exchange with the backward pass; if it is on, see whether "
            "CUDA_DEVICE_MAX_CONNECTIONS is 1 (serialises it without tensor parallelism: unset it, or 8 to 32)"
        ),
    )  # fmt: skip


def find_slow_link(job: Traced) -> Finding | None:
    """The group whose transfers take 1.5 times as long as the same operation and size of like groups."""
    c = job.collectives
    keyed: dict[tuple[str, int, int], dict[tuple[int, ...], list[int]]] = {}
    for k in range(len(c)):
        if c.size[k] > 0:
            key = "transfer" if is_transfer(c, k) else c.name[k], len(c.group[k]), int(c.size[k])
            keyed.setdefault(key, {}).setdefault(c.group[k], []).append(k)
    lost: dict[tuple[int, ...], float] = {}
    ratio: dict[tuple[int, ...], float] = {}
    for groups in keyed.values():
        if len(groups) < 2:
            continue
        typical = {group: float(np.median(c.transfer[own])) for group, own in groups.items()}
        for group, own in groups.items():
            others = [value for other, value in typical.items() if other != group]
            usual = float(np.median(others))
            if usual > 0 and typical[group] >= SLOW_LINK * usual:
                lost[group] = lost.get(group, 0.0) + float((c.transfer[own] - usual).sum()) / 1e9 / len(job.windows)
                ratio[group] = max(ratio.get(group, 0.0), typical[group] / usual)
    if not lost:
        return None
    group = max(lost, key=lost.__getitem__)
    share = lost[group] / job.step_s
    if share < WORTH:
        return None
    return Finding(
        kind="slow link",
        ranks=tuple(rank for rank in group if rank in job.timeline.recorded),
        stages=(),
        cause=(
            f"transfers of group {list(group)} take {ratio[group]:.1f} times as long as the same operations of like "
            "groups, waiting left out: the link between its ranks is slow"
        ),
        evidence={"times": ratio[group], "threshold": SLOW_LINK, "lost_s": lost[group]},
        cost_s_per_step=lost[group],
        share=share,
        confidence="high" if len(job.windows) >= 3 else "medium",
        change={},
        predicted_gain=(0.25 * share, 0.8 * share, share),
        verify="measure the bandwidth of each pair of these ranks alone; see which transport NCCL_DEBUG=INFO names",
    )
