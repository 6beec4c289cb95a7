"""Ranks of a traced job that others wait for: one slow rank, slowness that wanders, a heavy stage."""

import numpy as np

from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.idle_causes import HOST_CAUSES
from meshwright.diagnosis.stragglers import Verdict, judge_times
from meshwright.diagnosis.thresholds import SLOW
from meshwright.diagnosis.traced import Traced
from meshwright.files.findings import Finding
from meshwright.layout.thresholds import UNEVEN, WORTH

_TEST = "run one matrix product on each rank alone, then an all-reduce of each pair with it; compare clocks and heat"


def find_late_ranks(job: Traced) -> list[Finding]:
    """A persistent straggler, or jitter without a culprit, among the peers of each stage.

    Judged by each rank's step less its waiting for others, so that the rank that looks most idle is not blamed for
    the one it waits for. Of several stages the one whose rank costs most is named: the others wait for it.
    """
    persistent: list[tuple[float, Finding]] = []
    jitter: list[Finding] = []
    for ranks in job.peers:
        if len(ranks) < 2:
            continue
        columns = [job.column(rank) for rank in ranks]
        verdict = judge_times(job.own_s[:, columns])
        if verdict.kind == "persistent" and verdict.column is not None:
            finding = _late(job, ranks, verdict)
            if finding.share is not None and finding.share >= WORTH:
                persistent.append((verdict.excess, finding))
        elif verdict.kind == "jitter" and verdict.job_loss >= WORTH and len(job.windows) > 2:
            jitter.append(_jitter(job, ranks, verdict))
    if persistent:
        return [max(persistent, key=lambda pair: pair[0])[1]]
    return [max(jitter, key=lambda finding: finding.share or 0.0)] if jitter else []


def _late(job: Traced, ranks: tuple[int, ...], verdict: Verdict) -> Finding:
    assert verdict.column is not None
    rank = ranks[verdict.column]
    columns = [job.column(other) for other in ranks if other != rank]
    mine = job.column(rank)
    more = float(np.median(job.own_s[:, mine]) - np.median(job.own_s[:, columns]))
    compute = float(np.median(job.compute_s[:, mine]) - np.median(job.compute_s[:, columns]))
    last = job.collectives.last
    shared = [k for k in range(len(job.collectives)) if rank in job.collectives.group[k]]
    lateness = float(np.mean(last[shared] == rank)) if shared else 0.0
    host = {cause: job.idle.get(rank, {}).get(cause, 0.0) for cause in HOST_CAUSES}
    others = {c: float(np.median([job.idle.get(r, {}).get(c, 0.0) for r in ranks if r != rank])) for c in HOST_CAUSES}
    surplus = {cause: host[cause] - others[cause] for cause in HOST_CAUSES}
    worst = max(surplus, key=surplus.__getitem__)
    if compute >= 0.5 * more:
        why = f"it computes {seconds_text(compute)} longer a step"
    elif surplus[worst] > 0:
        why = f"its host launches late ({worst}: {seconds_text(surplus[worst])} more a step)"
    else:
        why = "its time goes neither into more computing nor into a recorded host cause"
    share = more / job.step_s
    return Finding(
        kind="slow rank",
        ranks=(rank,),
        stages=job.stage_of(rank),
        cause=(
            f"rank {rank} comes last to {lateness:.0%} of its collectives and has {verdict.excess:.0%} more of its own "
            f"to do than its peers in {verdict.persistence:.0%} of the steps: the others wait for it; {why}"
        ),
        evidence={
            "excess": verdict.excess, "persistence": verdict.persistence, "threshold": SLOW,
            "last_in_share_of_collectives": lateness, "own_s": more, "compute_s": compute, "idle_surplus_s": surplus,
            "steps": len(job.windows),
        },
        cost_s_per_step=more,
        share=share,
        confidence="high" if len(job.windows) >= 3 else "medium",
        change={},
        predicted_gain=(0.5 * share, 0.9 * share, share),
        verify=_TEST,
    )  # fmt: skip


def _jitter(job: Traced, ranks: tuple[int, ...], verdict: Verdict) -> Finding:
    lost = verdict.job_loss * job.step_s
    return Finding(
        kind="jitter",
        ranks=ranks,
        stages=job.stage_of(ranks[0]),
        cause=(
            f"ranks {list(ranks)} take turns being slow (the slowest of a step is {verdict.excess:.0%} over its peers)"
            ": transient, no single culprit"
        ),
        evidence={"excess": verdict.excess, "job_loss": verdict.job_loss, "threshold": SLOW,
                  "steps": len(job.windows)},
        cost_s_per_step=lost,
        share=verdict.job_loss,
        confidence="medium" if len(job.windows) >= 5 else "low",
        change={},
        predicted_gain=(0.0, 0.5 * verdict.job_loss, verdict.job_loss),
        verify="record more steps; look for other programs, garbage collection and data of uneven length on each host",
    )  # fmt: skip


def find_heavy_stage(job: Traced, slow: list[Finding]) -> Finding | None:
    """The pipeline stage that computes 10 % longer than the mean of the stages and whose surplus is worth 3 %.

    A stage counts with its quickest rank, so that a slow rank does not make its stage heavy.
    """
    if not job.stages or len(job.peers) < 2:
        return None
    loads = [float(min(np.median(job.compute_s[:, job.column(r)]) for r in ranks)) for ranks in job.peers]
    mean = float(np.mean(loads))
    heaviest = max(range(len(loads)), key=loads.__getitem__)
    surplus = loads[heaviest] - mean
    share = surplus / job.step_s
    blamed = {stage for finding in slow if finding.kind == "slow rank" for stage in finding.stages}
    if loads[heaviest] < UNEVEN * mean or share < WORTH or heaviest in blamed:
        return None
    alone = len(job.peers[heaviest]) == 1
    return Finding(
        kind="stage imbalance",
        ranks=job.peers[heaviest],
        stages=(heaviest,),
        cause=(
            f"stage {heaviest} (ranks {list(job.peers[heaviest])}) computes {seconds_text(loads[heaviest])} a step, "
            f"{loads[heaviest] / mean:.2f} times the mean of the stages: the others wait for it"
            + ("; a slow device in its place would look the same" if alone else "")
        ),
        evidence={"stage_compute_s": loads, "over_mean": loads[heaviest] / mean},
        cost_s_per_step=surplus,
        share=share,
        confidence="medium" if alone else "high",
        change={},
        predicted_gain=(0.5 * share, share, share),
        verify="move layers off that stage (diagnose with the plan proposes which) and compare the step time",
    )
