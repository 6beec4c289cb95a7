"""The published pipeline schedules on their own placements: which action each pipeline rank runs when.

The orders are those that torch.distributed.pipelining (2.13) runs, so a plan means the same in both. Sources: GPipe
(Huang et al. 2019), 1F1B (Narayanan et al. 2019), interleaved 1F1B (Narayanan et al. 2021), breadth-first
(Lamy-Poirier 2023), ZB-H1 and ZB-V (Qi et al. 2024), DualPipe (DeepSeek-AI 2024) folded into a V.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice, repeat

from meshwright.layout.pipeline_action import ActionKind, Order, PipelineAction

Chunk = tuple[int, int]  # (stage, micro-batch)

_action = partial(tuple.__new__, PipelineAction)
"""`PipelineAction(*fields)` without a call into Python: long orders are made of nothing else."""


def gpipe(rank: int, micro_batches: int) -> Order:
    """All forwards, then all backwards, of the one stage `rank`."""
    kinds: tuple[ActionKind, ...] = ("F", "B")
    return tuple(PipelineAction(rank, kind, i) for kind in kinds for i in range(micro_batches))


def one_f_one_b(rank: int, ranks: int, micro_batches: int) -> Order:
    """Forwards until the pipeline is full, then one forward and one backward in turn, then the last backwards."""
    chunks = [(rank, i) for i in range(micro_batches)]
    return _alternate(chunks, chunks, warmup=min(micro_batches, ranks - 1 - rank))


def looped_breadth_first(rank: int, ranks: int, chunks: int, micro_batches: int) -> Order:
    """Every micro-batch through one chunk before the next chunk; backwards the same way in reverse."""
    stages = [rank + ranks * chunk for chunk in range(chunks)]
    forward = [PipelineAction(stage, "F", i) for stage in stages for i in range(micro_batches)]
    backward = [PipelineAction(stage, "B", i) for stage in reversed(stages) for i in reversed(range(micro_batches))]
    return (*forward, *backward)


def micro_batches_a_round(ranks: int, micro_batches: int) -> int | None:
    """How many micro-batches pass one chunk before the next, in an interleaved schedule; None: no equal rounds."""
    rounds = max(1, micro_batches // ranks)
    return micro_batches // rounds if micro_batches % rounds == 0 else None


def interleaved(rank: int, ranks: int, chunks: int, micro_batches: int, split: bool = False) -> Order:
    """Depth-first 1F1B over several chunks a rank, in rounds of micro-batches.

    With `split` the backward is halved and weight gradients are put off by `rank` backwards: with one chunk a rank
    that is ZB-H1 of Qi et al. (as many live micro-batches as 1F1B), with more its interleaved form.
    """
    a_round = micro_batches_a_round(ranks, micro_batches)
    if a_round is None:
        raise ValueError(f"{micro_batches} micro-batches do not fill equal rounds on {ranks} ranks")
    forward, backward = [], []
    for k in range(chunks * micro_batches):
        block, place = divmod(k, a_round)
        micro_batch = block // chunks * a_round + place
        chunk = block % chunks
        forward.append((rank + ranks * chunk, micro_batch))
        backward.append((rank + ranks * (chunks - 1 - chunk), micro_batch))
    hops_back = ranks - 1 - rank
    warmup = min((chunks - 1) * a_round + (1 if split else 2) * hops_back, len(forward))
    return _alternate(forward, backward, warmup, put_off=rank if split else None)


def _alternate(forward: Sequence[Chunk], backward: Sequence[Chunk], warmup: int, put_off: int | None = None) -> Order:
    """`warmup` forwards, then forward and backward in turn. `put_off`: weight halves lag by so many backwards."""
    ahead = [_action((stage, "F", i)) for stage, i in forward]
    order, rest = ahead[:warmup], iter(ahead[warmup:])
    late = iter([] if put_off is None else [_action((stage, "W", i)) for stage, i in backward])
    for k, (stage, i) in enumerate(backward):
        order.extend(islice(rest, 1))
        order.append(_action((stage, "B" if put_off is None else "I", i)))
        if put_off is not None and k >= put_off:
            order.append(next(late))
    order.extend(late)
    return tuple(order)


def _counting(stage: int, kind: ActionKind) -> Callable[[], PipelineAction]:
    """The next action of that kind on that stage, at each call: micro-batch 0, 1, 2, ..."""
    return map(_action, zip(repeat(stage), repeat(kind), count())).__next__


def zbv(rank: int, ranks: int, micro_batches: int) -> Order:
    """ZB-V: two chunks a rank folded into a V; no bubble when F, I and W take equal time.

    The schedule is laid out for at least 2 * ranks - 1 micro-batches, the number that fills the V; with fewer the
    actions of the missing ones drop out.
    """
    planned = max(2 * ranks - 1, micro_batches)
    down, up = rank, 2 * ranks - 1 - rank  # the chunk on the way to the fold, and the one on the way back
    f_down, i_down, w_down = (_counting(down, kind) for kind in ("F", "I", "W"))
    f_up, i_up, w_up = (_counting(up, kind) for kind in ("F", "I", "W"))
    order = [f_down() for _ in range(2 * (ranks - rank) - 1)]
    for _ in range(rank):
        order += [f_up(), f_down()]
    for _ in range(ranks - rank):
        order += [f_up(), i_up(), w_up()]
    begun = 2 * ranks - 1 - rank  # forwards of the downward chunk so far
    for k in range(planned - ranks):  # the upward chunk has run `ranks` forwards so far
        if begun + k < planned:
            order.append(f_down())
        order += [i_down(), w_down(), f_up(), i_up(), w_up()]
    for _ in range(rank):
        order += [i_down(), i_up()]
    for _ in range(ranks - rank):
        order += [i_down(), w_down()]
    order += [w_up() for _ in range(rank)]
    order += [w_down() for _ in range(rank)]
    return tuple(action for action in order if action.micro_batch < micro_batches)


def dualpipev(rank: int, ranks: int, micro_batches: int) -> Order:
    """DualPipe folded into a V: forwards of one direction run beside backwards of the other.

    Where the original overlaps a forward with a backward, the forward comes first in the order. Needs at least
    2 * ranks micro-batches (ValueError otherwise).
    """
    if micro_batches < 2 * ranks:
        raise ValueError(f"{micro_batches} micro-batches do not fill a DualPipeV of {ranks} ranks")
    down, up = rank, 2 * ranks - 1 - rank
    f_down, f_up = _counting(down, "F"), _counting(up, "F")
    done = {down: 0, up: 0}
    put_off: deque[PipelineAction] = deque()
    order: list[PipelineAction] = []

    def backward(stage: int, split: bool = False) -> None:
        order.append(PipelineAction(stage, "I" if split else "B", done[stage]))
        if split:
            put_off.append(PipelineAction(stage, "W", done[stage]))
        done[stage] += 1

    behind = ranks - 1 - rank
    order += [f_down() for _ in range(2 * behind)]
    for _ in range(rank + 1):
        order += [f_down(), f_up()]
    for _ in range(behind):
        backward(up, split=True)
        order += [put_off.popleft(), f_up()]
    for _ in range(micro_batches - 2 * ranks + rank + 1):  # the steady state
        order.append(f_down())
        backward(up)
        order.append(f_up())
        backward(down)
    for _ in range(behind):
        backward(up)
        order.append(f_up())
        backward(down)
    for k in range(2 * (rank + 1)):  # both chunks in turn; the later half leaves its weight gradients for the drain
        backward(down if k % 2 else up, split=k > rank)
    for _ in range(behind):
        order.append(put_off.popleft())
        backward(down, split=True)
    order += put_off
    return tuple(order)
