"""Which single relaxation of a job buys most: each is planned anew."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from meshwright.basics.errors import AnswerIsNo
from meshwright.cluster.device import Link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.planner.candidates import Bench
from meshwright.planner.rank import ranked


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change of the job and its best plan then; `gain` in tokens a second (None: no plan)."""

    change: str
    plan: Plan | None
    gain: float | None


def _faster(link: Link) -> Link:
    rate = link.bytes_per_s
    return replace(link, bytes_per_s=replace(rate, value=2 * rate.value))


def _larger(cluster: Cluster) -> Cluster:
    parts = tuple(replace(part, memory_bytes=2 * part.memory_bytes) for part in cluster.parts)
    return replace(cluster, memory_bytes=2 * cluster.memory_bytes, parts=parts)


def relaxations(p: Proposal) -> Iterator[tuple[str, Proposal]]:
    """The job with one thing otherwise, and what that is."""
    cluster, free = p.cluster, p.wanted
    for field in fields(Wanted):
        if getattr(free, field.name) is not None:
            yield f"{field.name} left free", replace(p, wanted=replace(free, **{field.name: None}))
    if not cluster.parts:
        more = cluster.gpus + cluster.gpus_per_node
        if more < 2 * cluster.gpus:
            yield f"one more node ({more} devices)", replace(p, cluster=replace(cluster, gpus=more))
    twice = cluster.enlarged(2)
    yield f"twice the devices ({twice.gpus})", replace(p, cluster=twice)
    yield "twice the global batch", replace(p, global_batch=2 * p.global_batch)
    if p.seq_len % 2 == 0:
        yield f"half the sequence ({p.seq_len // 2})", replace(p, seq_len=p.seq_len // 2)
    yield f"twice the sequence ({2 * p.seq_len})", replace(p, seq_len=2 * p.seq_len)
    yield "devices with twice the memory", replace(p, cluster=_larger(cluster))
    parts = tuple(replace(part, intra=_faster(part.intra)) for part in cluster.parts)
    yield (
        "links inside nodes twice as fast",
        replace(p, cluster=replace(cluster, intra=_faster(cluster.intra), parts=parts)),
    )
    if not cluster.one_domain:
        yield "links between nodes twice as fast", replace(p, cluster=replace(cluster, inter=_faster(cluster.inter)))


def sensitivity(setup: Setup, best: Plan) -> tuple[Relaxation, ...]:
    """Each relaxation with its best plan, the greatest gain over `best` first. A degree that a job fixes stays fixed:
    more devices may then have no plan."""
    assert best.prediction is not None
    before = best.prediction.tokens_per_s
    found = []
    for change, proposal in relaxations(setup.proposal):
        try:
            plan = ranked(Bench(replace(setup, proposal=proposal)), top=1).plans[0]
        except AnswerIsNo:
            found.append(Relaxation(change, None, None))
            continue
        assert plan.prediction is not None
        found.append(Relaxation(change, plan, plan.prediction.tokens_per_s / before - 1))
    return tuple(sorted(found, key=lambda one: -(one.gain if one.gain is not None else -float("inf"))))
