"""When the answer is no: what stands in the way, and the nearest change that would help."""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import get_args

from meshwright.basics.quantities import gib
from meshwright.files.setup import Runner, Setup
from meshwright.layout.degrees import RECOMPUTE, Offload, describe
from meshwright.layout.proposal import Wanted
from meshwright.layout.rules import LEGALITY
from meshwright.planner.candidates import Bench, Candidate, leanest
from meshwright.planner.space import Group, Rejection, Space, space

_MOST_DEVICES = 64  # times as many as asked


def nothing_runs(setup: Setup, rejected: tuple[Rejection, ...]) -> str:
    """No layout is both legal and runnable by the framework that the job names."""
    reasons = list(dict.fromkeys(rejection.reason for rejection in rejected))[:5]
    if not reasons:  # the fixed parts contradict one another before any layout can be formed
        broken = [rule for rule in LEGALITY if not rule.holds(setup.proposal)]
        reasons = [f"[{rule.name}] {rule.explain(setup.proposal).message}" for rule in broken]
    lines = [f"no layout of this job can run (runnable_by = {setup.runnable_by}):", *(f"- {r}" for r in reasons)]
    if setup.runnable_by != "any" and (others := _other_runners(setup)):
        lines.append(f"it would with [search] runnable_by = {' or '.join(others)}")
    return "\n".join(lines)


def _other_runners(setup: Setup) -> list[str]:
    return [
        name
        for name in get_args(Runner)
        if name not in ("any", setup.runnable_by) and space(replace(setup, runnable_by=name)).families
    ]


def _lean_groups(found: Space) -> list[Group]:
    """For each set of degrees the thriftiest recompute, the smallest micro-batch, the highest ZeRO stage, and 1F1B
    where it is free: what needs least memory."""
    groups = []
    for family in found.families:
        choices = [
            (-RECOMPUTE.index(of.recompute), batches[batch][0], of.schedule != "1f1b", -of.zeros[-1], feature, batch)
            for feature, (of, batches) in enumerate(zip(family.features, family.batches, strict=True))
            for batch in range(len(batches))
        ]
        group = family.group(*min(choices)[-2:])
        groups.append(replace(group, zeros=group.zeros[-1:]))
    return groups


def leanest_of(setup: Setup) -> Candidate | None:
    """What comes closest to fitting of everything that the fixed parts of a job leave open; None when nothing runs."""
    return leanest(Bench(setup), _lean_groups(space(setup)))


def _freed(setup: Setup) -> Iterator[tuple[str, Setup]]:
    """The job with each fixed part of the layout set free, one at a time."""
    wanted = setup.proposal.wanted
    for f in fields(Wanted):
        if getattr(wanted, f.name) is not None:
            freed = replace(setup.proposal, wanted=replace(wanted, **{f.name: None}))
            yield f.name, replace(setup, proposal=freed)


def _otherwise(setup: Setup) -> Iterator[tuple[str, Setup]]:
    """The job with one thing otherwise that needs less memory and that the search leaves as it is. What offload costs
    in time is not predicted."""
    proposal, wanted = setup.proposal, setup.proposal.wanted
    if proposal.cluster.device.kind == "gpu" and wanted.offload is None:
        for offload in get_args(Offload)[1:]:
            away = replace(wanted, offload=offload)
            words = f"layout.offload = {offload} (states in CPU memory; what that costs in time is not predicted)"
            yield words, replace(setup, proposal=replace(proposal, wanted=away))
    if wanted.loss_chunk is None:
        chunked = replace(wanted, loss_chunk=max(1, proposal.seq_len // 8))
        yield f"layout.loss_chunk = {chunked.loss_chunk}", replace(setup, proposal=replace(proposal, wanted=chunked))
    if wanted.stages is None and proposal.seq_len % 2 == 0:
        half = replace(proposal, seq_len=proposal.seq_len // 2)
        yield f"batch.seq_len = {half.seq_len}", replace(setup, proposal=half)


def nothing_fits(bench: Bench, found: Space) -> str:
    """No layout fits in memory: the leanest one and its largest parts, and what would fit: a fixed choice set free,
    more devices, or more memory."""
    setup = bench.setup
    limit = setup.proposal.cluster.memory_bytes
    least = leanest(bench, _lean_groups(found))
    if least is None:
        return nothing_runs(setup, found.rejected)
    if least.fits:
        reasons = list(dict.fromkeys(rejection.reason for rejection in found.rejected))[:5]
        return "\n".join(["every layout that fits is refused by a rule or by the framework:", *reasons])
    lines = [
        f"nothing fits in {gib(limit)} a device: the leanest layout ({describe(least.layout)}, micro-batch "
        f"{least.batch.micro_batch}) needs {least.memory_text()}",
        "what would fit:",
        f"- devices with {gib(least.worst_bytes)} or more",
    ]
    for name, freed in _freed(setup):
        candidate = leanest_of(freed)
        if candidate is not None and candidate.fits:
            lines.append(f"- {name} left free: {describe(candidate.layout)} needs {candidate.memory_text()}")
    lines += [
        f"- {change}: {describe(candidate.layout)} needs {candidate.memory_text()}"
        for change, changed in _otherwise(setup)
        if (candidate := leanest_of(changed)) is not None and candidate.fits
    ]
    if (more := _more_devices(setup, limit)) is not None:
        gpus, candidate = more
        lines.append(f"- {gpus} devices of this kind: {describe(candidate.layout)} needs {candidate.memory_text()}")
    return "\n".join(lines)


def _more_devices(setup: Setup, limit: int) -> tuple[int, Candidate] | None:
    """The fewest devices, by doubling, on which something fits."""
    times = 2
    while times <= _MOST_DEVICES:
        gpus = setup.proposal.cluster.gpus * times
        cluster = setup.proposal.cluster.enlarged(times)
        candidate = leanest_of(replace(setup, proposal=replace(setup.proposal, cluster=cluster)))
        if candidate is not None and candidate.fits:
            return gpus, candidate
        times *= 2
    return None
