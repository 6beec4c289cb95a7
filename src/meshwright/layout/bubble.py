"""The idle share that a schedule has by itself, with equal stages and free communication."""

from functools import lru_cache

from meshwright.layout.degrees import Schedule
from meshwright.layout.schedules import SPLIT_BACKWARD, V_SHAPED, actions, default_placement

_COUNTED = 20_000  # actions of a rank's neighbours that are simply played through


def ideal_idle(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> float | None:
    """Idle share of a pipeline rank in a step that all ranks begin and end together, 0 to 1; None where there is no
    closed form for these numbers.

    gpipe and 1f1b: (p - 1) / (m + p - 1). interleaved and looped-bfs with v chunks: (p - 1) / (v m + p - 1) (Narayanan
    et al. 2021), which needs a round of p micro-batches. With halved backwards, F = I = W: (p - 1) / (3 v m + p - 1),
    which for zb-h1 with one chunk is the (p - 1)(F + I - W) of Qi et al. 2024; zbv needs 2 p - 1 micro-batches for it
    and dualpipev 2 p. What is left of a V is the p - 1 forwards that the last rank waits for at the start: its own
    actions leave no gap.
    """
    m, p = micro_batches, pp
    match schedule:
        case "gpipe" | "1f1b":
            return (p - 1) / (m + p - 1)
        case "interleaved" | "looped-bfs":
            return (p - 1) / (vpp * m + p - 1) if m >= p or vpp == 1 else None
        case "zbv" | "dualpipev" if m < 2 * p - (schedule == "zbv"):
            return None
        case "zb-h1" if m < p:
            return None
        case _:
            return (p - 1) / (3 * vpp * m + p - 1)


def own_idle(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> float | None:
    """`ideal_idle`, or where it has no closed form the idle share of the schedule's actions played through with
    forwards of one unit of time and backwards of two (halves of one each). None where that would take long."""
    idle = ideal_idle(schedule, pp, vpp, micro_batches)
    if idle is not None or pp * vpp * micro_batches > _COUNTED:
        return idle
    return _played(schedule, default_placement(schedule, pp, 2 if schedule in V_SHAPED else vpp), micro_batches)


@lru_cache(maxsize=64)
def _played(schedule: Schedule, placement: tuple[int, ...], micro_batches: int) -> float:
    orders = actions(schedule, placement, micro_batches)
    last, length = len(placement) - 1, {"F": 1.0, "I": 1.0, "W": 1.0, "B": 2.0}
    done: dict[tuple[int, str, int], float] = {}
    clock, next_of = [0.0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while next_of[rank] < len(order):
                stage, kind, m = order[next_of[rank]]
                if kind == "F":
                    needs = [(stage - 1, "F", m)] if stage else []
                elif kind == "W":
                    needs = [(stage, "I", m)]
                else:
                    back = "I" if schedule in SPLIT_BACKWARD else "B"
                    needs = [(stage, "F", m), *([(stage + 1, back, m)] if stage < last else [])]
                    needs = [_either(done, need) for need in needs]
                if any(need not in done for need in needs):
                    break
                clock[rank] = max([clock[rank], *(done[need] for need in needs)]) + length[kind]
                done[stage, kind, m] = clock[rank]
                next_of[rank] += 1
                moved = True
    work = sum(length[kind] for order in orders for _, kind, _ in order)
    return 1 - work / (len(orders) * max(clock))


def _either(done: dict[tuple[int, str, int], float], need: tuple[int, str, int]) -> tuple[int, str, int]:
    """A backward that may be whole or halved: whichever of the two has been done."""
    stage, kind, m = need
    return (stage, "B", m) if kind == "I" and (stage, "B", m) in done else need


def micro_batches_for_idle(schedule: Schedule, pp: int, vpp: int, share: float) -> int:
    """The fewest micro-batches at which a schedule idles at most `share`, a multiple of pp where there are several."""
    m = 1
    while (idle := ideal_idle(schedule, pp, vpp, m)) is None or idle > share:
        m = m + 1 if m < pp else m // pp * pp + pp
    return m
