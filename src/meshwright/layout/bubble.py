"""The idle share that a schedule has by itself, with equal stages and free communication."""

from meshwright.layout.degrees import Schedule


def ideal_idle(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> float | None:
    """Idle share of a pipeline rank, 0 to 1; None where no closed form is published for these numbers.

    gpipe and 1f1b: (p - 1) / (m + p - 1). interleaved and looped-bfs with v chunks: (p - 1) / (v m + p - 1) (Narayanan
    et al. 2021). zb-h1 with one chunk, F = I = W: (p - 1) / (3 m + p - 1) (Qi et al. 2023). zbv and dualpipev: none
    from 2 p micro-batches on.
    """
    m, p = micro_batches, pp
    match schedule:
        case "gpipe" | "1f1b":
            return (p - 1) / (m + p - 1)
        case "interleaved" | "looped-bfs":
            return (p - 1) / (vpp * m + p - 1)
        case "zb-h1":
            return (p - 1) / (3 * vpp * m + p - 1)
        case "zbv" | "dualpipev":
            return 0.0 if m >= 2 * p else None


def micro_batches_for_idle(schedule: Schedule, pp: int, vpp: int, share: float) -> int:
    """The fewest micro-batches at which a schedule idles at most `share`, a multiple of pp where there are several."""
    m = 1
    while (ideal_idle(schedule, pp, vpp, m) or 0.0) > share:
        m = m + 1 if m < pp else m // pp * pp + pp
    return m
