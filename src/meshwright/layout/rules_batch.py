"""Errors of the batch equation: global = micro_batch · micro_batches · dp."""

from meshwright.layout import predicates
from meshwright.layout.batch import divisors, equation, exact_nodes, holds, nearest_global
from meshwright.layout.given import possible_dp
from meshwright.layout.problem import Explanation, Rule, count, origin_note, spelled
from meshwright.layout.proposal import Proposal


def _fills_holds(p: Proposal) -> bool:
    dp = min(possible_dp(p), default=0)
    return dp * (p.wanted.micro_batch or 1) <= p.global_batch


def _explain_fills(p: Proposal) -> Explanation:
    dp, micro_batch = min(possible_dp(p)), p.wanted.micro_batch or 1
    legal = [f"{spelled(p, 'batch.global')} = {dp * micro_batch}"]
    whole = p.global_batch // dp if p.global_batch % dp == 0 else 0
    largest = max((b for b in divisors(whole) if b <= micro_batch), default=0)
    if largest:
        legal.append(f"{spelled(p, 'batch.micro_batch')} = {largest}")
    fewer = max((d for d in divisors(p.global_batch) if d * micro_batch <= p.global_batch), default=0)
    if fewer:
        legal.append(f"{spelled(p, 'layout.dp')} = {fewer}")
    return Explanation(
        f"{count(dp, 'replica')} × {count(micro_batch, 'sample')} = {dp * micro_batch} samples at the least, and a "
        f"step has {p.global_batch}",
        tuple(legal),
    )


def _equation_holds(p: Proposal) -> bool:
    w, total = p.wanted, p.global_batch
    replicas = (w.dp,) if w.dp is not None else possible_dp(p)
    filled = [dp for dp in replicas if dp * (w.micro_batch or 1) <= total]  # without any, the other rule speaks
    return not filled or any(_solvable(total, dp, w.micro_batch, w.micro_batches) for dp in filled)


def _solvable(total: int, dp: int, micro_batch: int | None, micro_batches: int | None) -> bool:
    if micro_batch is not None and micro_batches is not None:
        return holds(total, micro_batch, micro_batches, dp)
    return bool(predicates.divides(dp * (micro_batch or 1) * (micro_batches or 1), total))


def _explain_equation(p: Proposal) -> Explanation:
    w, total = p.wanted, p.global_batch
    dp = min(possible_dp(p), key=lambda degree: abs(total - degree * (w.micro_batch or 1) * (w.micro_batches or 1)))
    groups = f"{count(dp, 'group')}{origin_note(p, 'cluster.gpus') if w.dp is None else ''}"
    legal: list[str] = []
    if w.micro_batch is not None and w.micro_batches is not None:
        found = dp * w.micro_batch * w.micro_batches
        product = f"{groups} × {count(w.micro_batch, 'sample')} × {count(w.micro_batches, 'micro-batch')}"
        solved = f"{total} = {w.micro_batch} · {w.micro_batches} · d needs d = "
        message = f"{product} = {found}, not {total} ({solved}{total / (w.micro_batch * w.micro_batches):g})"
        if total % (dp * w.micro_batch) == 0:
            legal.append(f"{count(total // (dp * w.micro_batch), 'micro-batch')} give {total}")
        if total % (dp * w.micro_batches) == 0:
            legal.append(f"{spelled(p, 'batch.micro_batch')} = {total // (dp * w.micro_batches)}")
        if total % (w.micro_batch * w.micro_batches) == 0:
            needed = total // (w.micro_batch * w.micro_batches)
            legal.append(f"{spelled(p, 'layout.dp')} = {needed}")
            if needed > dp and origin_note(p, "cluster.gpus"):
                legal.append("if more devices were meant to take part: start one process on each, with the launcher")
        if not legal:
            legal += _near_globals(p, dp * w.micro_batch)
        return Explanation(message, (*legal, f"{spelled(p, 'batch.global')} = {found}"))
    step = dp * (w.micro_batch or 1) * (w.micro_batches or 1)
    message = (
        f"{equation(total, w.micro_batch, w.micro_batches, dp)} has no whole solution: {total} samples are not a "
        f"multiple of {step}"
    )
    legal = [*_near_globals(p, step), *_node_counts(p, dp)]
    if total % dp == 0 and w.micro_batch is not None:
        near = [b for b in divisors(total // dp) if w.micro_batches is None]
        below = max((b for b in near if b < w.micro_batch), default=None)
        above = min((b for b in near if b > w.micro_batch), default=None)
        choices = " or ".join(str(b) for b in (below, above) if b is not None)
        legal += [f"{spelled(p, 'batch.micro_batch')} = {choices}"] if choices else []
    return Explanation(message, tuple(legal))


def _node_counts(p: Proposal, dp: int) -> list[str]:
    """The numbers of nodes that keep this global batch and micro-batch, where each node holds whole replicas."""
    each, over = divmod(dp, p.cluster.nodes)
    uneven = len({len(ranks) for ranks in p.cluster.node_ranks}) > 1
    if p.cluster.nodes == 1 or over or uneven or p.wanted.micro_batch is None or p.wanted.micro_batches is not None:
        return []
    nodes = exact_nodes(p.global_batch, p.wanted.micro_batch, each)
    return [f"{', '.join(map(str, nodes))} nodes keep {spelled(p, 'batch.global')} = {p.global_batch}"] if nodes else []


def _near_globals(p: Proposal, step: int) -> list[str]:
    below, above = nearest_global(p.global_batch, step, 1)
    choices = f"{below} or {above}" if below != above else str(below)
    return [f"{spelled(p, 'batch.global')} = {choices}"]


_FIELDS = ("batch.global", "batch.micro_batch", "batch.micro_batches", "layout.dp")

BATCH_RULES: tuple[Rule, ...] = (
    Rule("batch-fills-replicas", "error", _FIELDS, _fills_holds, _explain_fills),
    Rule("batch-equation", "error", _FIELDS, _equation_holds, _explain_equation),
)
