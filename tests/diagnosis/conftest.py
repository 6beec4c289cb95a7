"""Runs with planted faults: a plan, unit times, and the timeline that the simulator says they give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.plan import Plan
from meshwright.files.run import MeasuredUnits, UnitTime
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal, Wanted, proposal_of
from meshwright.layout.schedules import actions
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.model.units import expand_all
from meshwright.predictor.pipeline import simulate
from meshwright.timeline.columns import COLUMNS, Action, Kind, Timeline, build, concatenate

K = 4.0  # wall seconds a device second of the planted runs


def make_plan(
    stages: list[list[str]], *, micro_batches: int = 16, micro_batch: int = 1, dp: int = 1, layers: int = 8,
    recompute: str = "none", memory_gib: float = 8.0, schedule: str = "1f1b", placement: tuple[int, ...] | None = None,
) -> Plan:  # fmt: skip
    arch = Architecture("small", "llama", layers, 256, 8, 4, 32, 704, 1024)
    one = Constant(1e11, "guessed")
    device = Device("cpu", "cpu", int(memory_gib * 2**30), {"fp32": one, "bf16": one}, Constant(1e10, "guessed"),
                    Constant(1e-6, "guessed"), Constant(0.0, "guessed"))  # fmt: skip
    link = Link("loopback", Constant(1e9, "guessed"), Constant(1e-5, "guessed"))
    placement = placement or tuple(range(len(stages)))
    pp = max(placement) + 1
    cluster = Cluster(device, pp * dp, pp * dp, link, link, int(memory_gib * 2**30), local=True, cores=2)
    batch = Batch(micro_batch * micro_batches * dp, micro_batch, micro_batches, 128)
    names = tuple(expand_all(arch, stage) for stage in stages)
    layout = Layout(names, placement, dp=dp, pp=pp, schedule=schedule, recompute=recompute)  # type: ignore[arg-type]
    proposal = Proposal(arch, cluster, Training(precision="fp32"), batch.global_batch, 128, Wanted())
    return Plan(Setup("planted", proposal_of(proposal, layout, batch)), layout, batch)


@dataclass(frozen=True)
class Planted:
    plan: Plan
    measured: MeasuredUnits
    timeline: Timeline


def unit_times(plan: Plan, slow_stages: Mapping[int, float]) -> MeasuredUnits:
    """attn 4 ms, ffn 6 ms, embed and head 1 ms forward; backward twice that, and once more with recompute."""
    units = {}
    for stage, names in enumerate(plan.layout.stages):
        for name in names:
            forward = {"attn": 4e-3, "ffn": 6e-3}.get(name.split(".")[-1], 1e-3) * slow_stages.get(stage, 1.0)
            again = plan.layout.recompute == "full" and name.startswith("layers")
            units[name] = UnitTime(forward, (3 if again else 2) * forward, 50)
    return MeasuredUnits(units, plan.batch.micro_batch, 128, 1, plan.layout.recompute, "dilated", 2e-3)


def plant(
    plan: Plan, *, slow_ranks: Mapping[int, float] | None = None, slow_stages: Mapping[int, float] | None = None,
    steps: int = 4, noise: float = 0.01,
) -> Planted:  # fmt: skip
    """A run of that plan in dilated mode: ranks are pp-major, an exchange and 2 ms of optimizer end each step."""
    layout, m = plan.layout, plan.batch.micro_batches
    measured = unit_times(plan, slow_stages or {})
    orders = actions(layout.schedule, layout.placement, m)
    forward = np.array([sum(measured.units[u].forward_s for u in names) for names in layout.stages])
    backward = np.array([sum(measured.units[u].backward_s for u in names) for names in layout.stages])
    rng = np.random.default_rng(0)
    parts, at = [], 1_000_000_000
    everyone = tuple(range(layout.pp * layout.dp))
    for step in range(steps):
        lines, longest = [], 0
        for replica in range(layout.dp):
            factor = np.array([(slow_ranks or {}).get(r * layout.dp + replica, 1.0) for r in layout.placement])
            factor = factor * (1 + noise * rng.standard_normal(len(factor)))
            done = simulate(orders, layout.placement, forward * factor, backward * factor, hop_s=2e-4)
            line = done.timeline(step)
            longest = max(longest, int(line.end.max()))
            columns = {name: getattr(line, name) for name in COLUMNS} | {"rank": line.rank * layout.dp + replica}
            lines.append(build(columns, names=line.names, mode="dilated", time_scale=K))
        ends = [int(line.end[line.rank == rank].max()) for line in lines for rank in np.unique(line.rank)]
        ranks = [int(rank) for line in lines for rank in np.unique(line.rank)]
        tail = [(r, e, longest + 100_000, Kind.COMMUNICATION, Action.NONE, 0) for r, e in zip(ranks, ends, strict=True)]
        tail += [(r, longest + 100_000, longest + 2_100_000, Kind.COMPUTE, Action.OPTIMIZER, 1) for r in ranks]
        rank, start, end, kind, action, name = (list(column) for column in zip(*tail, strict=True))
        columns = {
            "rank": rank, "start": start, "end": end, "kind": kind, "action": action, "name": name,
            "step": [step] * len(tail), "group": [0 if k == Kind.COMMUNICATION else -1 for k in kind],
            "sequence": [step if k == Kind.COMMUNICATION else -1 for k in kind],
        }  # fmt: skip
        lines.append(
            build(columns, names=("all-reduce", "optimizer"), groups=(everyone,), mode="dilated", time_scale=K)
        )
        whole = concatenate(lines)
        columns = {column: getattr(whole, column) for column in COLUMNS}
        columns |= {"start": at + whole.start * int(K), "end": at + whole.end * int(K)}
        parts.append(build(columns, names=whole.names, groups=whole.groups, mode="dilated", time_scale=K))
        at = int(parts[-1].end.max()) + 1_000_000
    return Planted(plan, measured, concatenate(parts))


@pytest.fixture
def planned() -> Callable[..., Plan]:
    return make_plan


@pytest.fixture
def planted() -> Callable[..., Planted]:
    return plant
