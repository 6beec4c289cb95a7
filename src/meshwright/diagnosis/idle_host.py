"""Jobs whose devices wait for the host: the batch is too small, or the host does something else."""

import numpy as np

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.idle_causes import HOST_CAUSES
from meshwright.diagnosis.traced import Traced
from meshwright.files.findings import Finding
from meshwright.timeline.columns import Kind

HOST_BOUND = 0.20
"""A device that waits for the host for this share of the step makes a job host bound (guessed)."""

_FIX = {
    "data loading": "load ahead with more workers and pinned memory",
    "synchronising": "take out calls that wait for the device (item, nonzero, synchronize) from the step",
    "allocation": "allocate once: let the caching allocator keep its memory",
    "garbage collection": "collect between steps, or freeze objects at the start",
}


def find_host_bound(job: Traced) -> Finding | None:
    """The finding where the devices of a typical rank idle over 20 % of the step because nothing was launched."""
    if not job.idle:
        return None
    by_cause = {cause: float(np.median([own[cause] for own in job.idle.values()])) for cause in HOST_CAUSES}
    waiting = [sum(own[cause] for cause in HOST_CAUSES) for own in job.idle.values()]
    host = float(np.median(waiting))
    share = host / job.step_s
    compute = float(np.median(job.compute_s))
    if share < HOST_BOUND:
        return None
    worst = max(HOST_CAUSES, key=by_cause.__getitem__)
    named = worst in _FIX and by_cause[worst] >= 0.5 * host
    line = job.timeline
    kernels = line.kind == Kind.COMPUTE
    length = float(np.median((line.end - line.start)[kernels])) / 1e9 if kernels.any() else 0.0
    why = (
        f"most of it in {worst}: {_FIX[worst]}"
        if named
        else f"the batch is too small (the median kernel runs {seconds_text(length)}): launching takes longer"
    )
    return Finding(
        kind="host bound",
        ranks=tuple(job.idle),
        stages=(),
        cause=f"devices wait {share:.0%} of the step for the host and compute {compute / job.step_s:.0%} of it; {why}",
        evidence={"idle_for_host_s": by_cause, "compute_s": compute, "median_kernel_s": length,
                  "threshold": HOST_BOUND},
        cost_s_per_step=host,
        share=share,
        confidence="high" if share >= 2 * HOST_BOUND else "medium",
        change={},
        predicted_gain=(0.25 * share, 0.6 * share, share),
        verify=(
            f"{_FIX[worst]}, then compare the step time, profiling off"
            if named
            else "double the micro-batch: samples a second should nearly double; or capture the step in a CUDA graph"
        ),
    )  # fmt: skip
