"""The idle share that a schedule has by itself, with equal stages and free communication."""

from meshwright.layout.degrees import Schedule


def ideal_idle(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> float | None:
    """Idle share of a pipeline rank in a step that all ranks begin and end together, 0 to 1; None where there is no
    closed form for these numbers.

    gpipe and 1f1b: (p - 1) / (m + p - 1). interleaved and looped-bfs with v chunks: (p - 1) / (v m + p - 1) (Narayanan
    et al. 2021). With halved backwards, F = I = W: (p - 1) / (3 v m + p - 1), which for zb-h1 with one chunk is the
    (p - 1)(F + I - W) of Qi et al. 2024; zbv needs 2 p - 1 micro-batches for it and dualpipev 2 p. What is left of a V
    is the p - 1 forwards that the last rank waits for at the start: its own actions leave no gap.
    """
    m, p = micro_batches, pp
    match schedule:
        case "gpipe" | "1f1b":
            return (p - 1) / (m + p - 1)
        case "interleaved" | "looped-bfs":
            return (p - 1) / (vpp * m + p - 1)
        case "zbv" | "dualpipev" if m < 2 * p - (schedule == "zbv"):
            return None
        case _:
            return (p - 1) / (3 * vpp * m + p - 1)


def micro_batches_for_idle(schedule: Schedule, pp: int, vpp: int, share: float) -> int:
    """The fewest micro-batches at which a schedule idles at most `share`, a multiple of pp where there are several."""
    m = 1
    while (idle := ideal_idle(schedule, pp, vpp, m)) is None or idle > share:
        m = m + 1 if m < pp else m // pp * pp + pp
    return m
