"""All findings of a traced job, one for each cause, and the figures behind them."""

from collections.abc import Mapping

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.communication import SAME_CLOCK_NS, bandwidths, waited
from meshwright.diagnosis.idle_host import find_host_bound
from meshwright.diagnosis.idle_pipeline import pipeline_idle
from meshwright.diagnosis.traced import Traced
from meshwright.diagnosis.traced_communication import (
    find_missing_overlap,
    find_repeated_exchange,
    find_slow_link,
)  # fmt: skip
from meshwright.diagnosis.traced_ranks import find_heavy_stage, find_late_ranks
from meshwright.files.findings import Finding


def findings_of(job: Traced, *, silent: bool) -> tuple[tuple[Finding, ...], list[str], Mapping[str, object]]:
    """Findings sorted by cost, remarks, and tables (waits, clocks, bus bandwidths, idle by cause).

    `silent`: a job of several ranks whose communication was not recorded; nothing is then said about waiting.
    """
    notes = list(job.collectives.notes)
    found: list[Finding | None] = [find_host_bound(job)]
    if not silent and len(job.collectives):
        slow = find_late_ranks(job)
        repeated = find_repeated_exchange(job)
        found += [*slow, find_heavy_stage(job, slow), repeated, find_slow_link(job)]
        found.append(None if repeated else find_missing_overlap(job))
    far = {rank: offset for rank, offset in job.clocks.offset_s.items() if abs(offset) * 1e9 >= SAME_CLOCK_NS}
    if far:
        residual = seconds_text(job.clocks.residual_s or 0.0)
        notes.append(
            f"clocks of {len(far)} ranks were moved (by up to {seconds_text(max(map(abs, far.values())))}) so that "
            f"collectives end together; they still differ by {residual} (median)"
        )
    tables: dict[str, object] = {
        "idle_s_by_cause": {str(rank): dict(causes) for rank, causes in job.idle.items()},
        "pipeline_idle_s": {str(rank): phases for rank, phases in pipeline_idle(job).items()},
        "waiting_s": {str(rank): value for rank, value in waited(job.timeline, job.collectives).items()},
        "clock_offset_s": {str(rank): value for rank, value in job.clocks.offset_s.items()},
        "clock_residual_s": job.clocks.residual_s,
        "bus_bandwidth": bandwidths(job.collectives),
        "collectives_matched": len(job.collectives),
        "matching_inferred": job.collectives.inferred,
    }  # fmt: skip
    kept = sorted((one for one in found if one is not None), key=lambda one: one.cost_s_per_step or 0.0, reverse=True)
    return tuple(kept), notes, tables
