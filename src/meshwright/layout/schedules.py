"""Pipeline schedules: the order of actions on each pipeline rank, for any map of stages to ranks."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from meshwright.basics.errors import bad_input
from meshwright.layout import schedules_standard as standard
from meshwright.layout.degrees import Schedule
from meshwright.layout.pipeline_action import ActionKind, Order, PipelineAction
from meshwright.layout.schedules_list import list_schedule

__all__ = [
    "SPLIT_BACKWARD", "V_SHAPED", "ActionKind", "Order", "PipelineAction", "actions", "default_placement", "in_flight",
    "is_standard", "micro_batch_rule", "peak_live", "takes_chunks",
]  # fmt: skip

V_SHAPED: tuple[Schedule, ...] = ("zbv", "dualpipev")
"""Schedules that fold two chunks a rank into a V: rank r holds stages r and 2 * pp - 1 - r."""

SPLIT_BACKWARD: tuple[Schedule, ...] = ("zb-h1", "zbv", "dualpipev")
"""Schedules with separate actions for input and weight gradients."""


def default_placement(schedule: Schedule, pp: int, vpp: int = 1) -> tuple[int, ...]:
    """The pipeline rank of each of the pp * vpp stages: round and round, or a V for `V_SHAPED` schedules.

    Raises InputError when a V is asked for with anything but two chunks a rank.
    """
    if schedule in V_SHAPED:
        if vpp != 2:
            raise bad_input(f"{schedule} holds two chunks a rank", field="layout.vpp", value=vpp, legal="2")
        return (*range(pp), *reversed(range(pp)))
    return tuple(range(pp)) * vpp


def takes_chunks(schedule: Schedule, pp: int, chunks: int) -> bool:
    """Is the published schedule made for that many chunks a rank? A V folds two, 1F1B and GPipe run one."""
    if schedule in V_SHAPED:
        return pp == 1 or chunks == 2
    return schedule not in ("gpipe", "1f1b") or chunks == 1


def is_standard(schedule: Schedule, placement: Sequence[int]) -> bool:
    """Is that the placement the published schedule is made for?"""
    pp = max(placement) + 1
    vpp, rest = divmod(len(placement), pp)
    if rest or (schedule in ("gpipe", "1f1b") and vpp != 1) or (schedule in V_SHAPED and vpp != 2):
        return False
    return tuple(placement) == default_placement(schedule, pp, vpp)


def micro_batch_rule(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> str | None:
    """Why that many micro-batches a step are not legal, with the nearest legal counts; None when they are.

    Legal: interleaved and zb-h1 need a multiple of pp, dualpipev at least 2 * pp, the others any number. Fewer
    micro-batches than stages are legal (and mostly idle): a matter for a warning.
    """
    if micro_batches < 1:
        return f"micro_batches {micro_batches}: a step has at least one micro-batch"
    if schedule == "dualpipev" and micro_batches < 2 * pp:
        return f"dualpipev needs micro_batches >= 2 · pp = {2 * pp}, not {micro_batches}"
    if schedule in ("interleaved", "zb-h1") and pp > 1 and micro_batches % pp:
        below, above = micro_batches // pp * pp, -(-micro_batches // pp) * pp
        near = f"{below} or {above}" if below else f"{above}"
        return f"{schedule} needs micro_batches to be a multiple of pp = {pp}, not {micro_batches} (legal: {near})"
    return None


def actions(schedule: Schedule, placement: Sequence[int], micro_batches: int) -> tuple[Order, ...]:
    """The order of actions of each pipeline rank; `placement[s]` is the pipeline rank that holds stage s.

    On a schedule's own placement the published order, the same that torch.distributed.pipelining runs (zb-h1 is its
    interleaved zero-bubble schedule). On any other placement, or where the published order does not exist for that
    number of micro-batches, list scheduling: gpipe and looped-bfs run a rank's forwards before its backwards, the
    rest backwards first within 1F1B's limit of live micro-batches; zb-h1, zbv and dualpipev halve the backward.
    Raises InputError when a pipeline rank holds no stage or there is no micro-batch.
    """
    return _actions(schedule, tuple(placement), micro_batches)


@lru_cache(maxsize=64)
def _actions(schedule: Schedule, placement: tuple[int, ...], m: int) -> tuple[Order, ...]:
    if not placement or set(placement) != set(range(max(placement) + 1)):
        rule = "every pipeline rank holds at least one stage, ranks are numbered from 0"
        raise bad_input(rule, field="layout.placement", value=list(placement))
    if m < 1:
        raise bad_input("a step has at least one micro-batch", field="batch.micro_batches", value=m)
    pp = max(placement) + 1
    vpp = len(placement) // pp
    rounds = standard.micro_batches_a_round(pp, m) is not None
    published: Mapping[Schedule, tuple[bool, Callable[[int], Order]]] = {
        "gpipe": (True, lambda rank: standard.gpipe(rank, m)),
        "1f1b": (True, lambda rank: standard.one_f_one_b(rank, pp, m)),
        "interleaved": (rounds, lambda rank: standard.interleaved(rank, pp, vpp, m)),
        "looped-bfs": (True, lambda rank: standard.looped_breadth_first(rank, pp, vpp, m)),
        "zb-h1": (rounds, lambda rank: standard.interleaved(rank, pp, vpp, m, split=True)),
        "zbv": (True, lambda rank: standard.zbv(rank, pp, m)),
        "dualpipev": (m >= 2 * pp, lambda rank: standard.dualpipev(rank, pp, m)),
    }
    exists, order_of = published[schedule]
    if exists and is_standard(schedule, placement):
        return tuple(order_of(rank) for rank in range(pp))
    forwards_first = schedule in ("gpipe", "looped-bfs")
    return list_schedule(placement, m, split=schedule in SPLIT_BACKWARD, forwards_first=forwards_first)


def peak_live(orders: Sequence[Sequence[PipelineAction]], weights: Sequence[float] | None = None) -> tuple[float, ...]:
    """The most activation weight alive at once on each pipeline rank.

    A micro-batch is alive on a stage from its forward until its backward (until the weight half, when halved) and
    counts `weights[stage]` (bytes, say; 1 when left out). 1F1B with one stage a rank: min(m, p - s).
    """
    peaks = []
    for order in orders:
        now = peak = 0.0
        for stage, kind, _ in order:
            weight = 1.0 if weights is None else weights[stage]
            if kind == "F":
                now += weight
                peak = max(peak, now)
            elif kind != "I":
                now -= weight
        peaks.append(peak)
    return tuple(peaks)


def in_flight(orders: Sequence[Sequence[PipelineAction]]) -> tuple[int, ...]:
    """The most micro-batches alive at once on each pipeline rank, counted once for each stage that holds them."""
    return tuple(round(peak) for peak in peak_live(orders))
